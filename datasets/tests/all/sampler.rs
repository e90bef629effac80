//! The order of samples: a permutation, another one in each epoch, the same one for the same seed and epoch.

use vdnn_datasets::{Error, LastBatch, Order, Position, Sampler};

fn shuffled(len: usize, batch_size: usize, seed: u64, last: LastBatch) -> Sampler {
    Sampler::new(len, batch_size, Order::Shuffled { seed }, last).unwrap()
}

#[test]
fn it_is_a_permutation() {
    for len in [1, 2, 3, 17, 10_000] {
        for epoch in [0, 1, u64::MAX] {
            let mut order = shuffled(len, 1, 9, LastBatch::Keep).permutation(epoch);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..len), "{len} in epoch {epoch}");
        }
    }
}

#[test]
fn seed_and_epoch_decide_it() {
    let order = |seed, epoch| shuffled(1000, 10, seed, LastBatch::Drop).permutation(epoch);
    assert_eq!(order(1, 4), order(1, 4));
    assert_ne!(order(1, 4), order(1, 5));
    assert_ne!(order(1, 4), order(2, 4));
    assert_ne!(order(1, 2), order(2, 1), "seed and epoch must not be interchangeable");
}

/// Values from an implementation of ChaCha8 and of the shuffle written apart from this one, in Python. If this test
/// fails, checkpoints would resume with another order: change `SHUFFLE_VERSION`, or undo the change.
#[test]
fn version_1_stays_the_same() {
    assert_eq!(vdnn_datasets::SHUFFLE_VERSION, 1);
    let order = |seed, epoch| shuffled(10, 1, seed, LastBatch::Drop).permutation(epoch);
    assert_eq!(order(0, 0), [9, 2, 3, 4, 6, 7, 0, 1, 5, 8]);
    assert_eq!(order(42, 0), [7, 6, 5, 1, 0, 4, 8, 9, 2, 3]);
    assert_eq!(order(42, 1), [4, 6, 8, 9, 2, 3, 0, 5, 1, 7]);
    assert_eq!(order(u64::MAX, 7), [1, 0, 6, 4, 3, 2, 9, 7, 5, 8]);
}

#[test]
fn every_place_is_as_likely() {
    // Where sample 0 lands over 4,000 epochs: 8 places, 500 each, deviation about 21.
    let sampler = shuffled(8, 1, 3, LastBatch::Drop);
    let mut counts = [0i32; 8];
    for epoch in 0..4000 {
        counts[sampler.permutation(epoch).iter().position(|&i| i == 0).unwrap()] += 1;
    }
    assert!(counts.iter().all(|&c| (c - 500).abs() < 105), "{counts:?}");
}

#[test]
fn sequential_is_by_index() {
    let sampler = Sampler::new(5, 2, Order::Sequential, LastBatch::Keep).unwrap();
    assert_eq!(sampler.permutation(0), [0, 1, 2, 3, 4]);
    assert_eq!(sampler.permutation(3), sampler.permutation(0));
}

#[test]
fn the_last_batch_is_dropped_or_smaller() {
    let order: Vec<usize> = (0..10).collect();
    let drop = Sampler::new(10, 4, Order::Sequential, LastBatch::Drop).unwrap();
    assert_eq!((drop.batches_per_epoch(), drop.samples_per_epoch(), drop.partial_len()), (2, 8, None));
    assert!(drop.batch(&order, 2).is_empty());
    let keep = Sampler::new(10, 4, Order::Sequential, LastBatch::Keep).unwrap();
    assert_eq!((keep.batches_per_epoch(), keep.samples_per_epoch(), keep.partial_len()), (3, 10, Some(2)));
    assert_eq!(keep.batch(&order, 2), [8, 9]);
    assert!(keep.batch(&order, 3).is_empty());
    let even = Sampler::new(8, 4, Order::Sequential, LastBatch::Keep).unwrap();
    assert_eq!((even.batches_per_epoch(), even.partial_len()), (2, None));
    let larger = Sampler::new(3, usize::MAX, Order::Sequential, LastBatch::Keep).unwrap();
    assert_eq!((larger.batches_per_epoch(), larger.samples_per_epoch(), larger.batch_len(0)), (1, 3, 3));
}

#[test]
fn impossible_batches_are_refused() {
    let new = |len, size, last| Sampler::new(len, size, Order::Sequential, last).unwrap_err();
    assert!(matches!(new(10, 0, LastBatch::Keep), Error::BadOption { option: "batch size", .. }));
    assert!(matches!(new(0, 4, LastBatch::Keep), Error::BadOption { .. }));
    assert!(matches!(new(3, 4, LastBatch::Drop), Error::NoFullBatch { len: 3, batch_size: 4 }));
}

#[test]
fn positions_and_numbers_are_inverse() {
    let sampler = shuffled(10, 4, 0, LastBatch::Keep);
    for number in 0..20 {
        assert_eq!(sampler.number(sampler.position(number)).unwrap(), number);
    }
    assert_eq!(sampler.position(7), Position { epoch: 2, batch: 1 });
    // The end of an epoch is the start of the next; beyond it is nothing.
    assert_eq!(sampler.number(Position { epoch: 1, batch: 3 }).unwrap(), 6);
    let error = sampler.number(Position { epoch: 1, batch: 4 }).unwrap_err();
    assert!(error.to_string().contains("batch 4 of epoch 1"), "{error}");
    assert!(sampler.number(Position { epoch: u64::MAX, batch: 0 }).is_err());
}
