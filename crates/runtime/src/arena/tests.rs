//! Borrows, views and the high-water mark.

use super::mark::CHUNK;
use super::view::part_range;
use super::*;

fn access(reads: &[ByteRegion], writes: &[ByteRegion]) -> Arc<Access> {
    Access::new("test", reads, writes).unwrap()
}

#[test]
fn a_conflict_is_refused_while_it_lasts() {
    let arena = Arena::new("device", 64).unwrap();
    let (low, high) = (ByteRegion::contiguous(0, 16), ByteRegion::contiguous(8, 16));
    let reading = arena.borrow(&access(&[low], &[])).unwrap();
    arena.borrow(&access(&[high], &[])).unwrap();
    let refused = arena.borrow(&access(&[], &[high]));
    assert!(matches!(refused, Err(DeviceError::Conflict { .. })), "{refused:?}");
    drop(reading);
    arena.borrow(&access(&[], &[high])).unwrap();
}

#[test]
fn bounds_and_alignment_are_checked() {
    let arena = Arena::new("device", 16).unwrap();
    assert!(arena.borrow(&access(&[ByteRegion::contiguous(8, 9)], &[])).is_err());
    let mut borrow = arena.borrow(&access(&[ByteRegion::contiguous(2, 8)], &[])).unwrap();
    let opened = borrow.open();
    assert!(opened.reads[0].view::<f32>().is_err());
    assert_eq!(opened.reads[0].view::<u16>().unwrap().len(), 4);
}

#[test]
fn copies_between_rows_and_stretches() {
    let arena = Arena::new("device", 64).unwrap();
    let rows = ByteRegion { offset: 33, rows: 3, row_bytes: 4, stride: 7 };
    let mut borrow = arena.borrow(&access(&[ByteRegion::contiguous(0, 12)], &[rows])).unwrap();
    let Opened { reads, mut writes } = borrow.open();
    let source: Vec<u8> = (1..13).collect();
    let mut target = writes.remove(0).view::<u8>().unwrap();
    target.copy_from(&View::from_slice(&source), 3..11);
    let mut seen = Vec::new();
    target.for_each_row(|row| seen.push(row.to_vec()));
    assert_eq!(seen, [[0, 0, 0, 4], [5, 6, 7, 8], [9, 10, 11, 0]]);
    assert_eq!(reads[0].view::<u8>().unwrap().len(), 12);
}

#[test]
fn the_highest_changed_byte_is_exact() {
    let arena = Arena::new("device", 3 * CHUNK as u64 + 13).unwrap();
    arena.fill_pattern().unwrap();
    assert_eq!(arena.highest_changed().unwrap(), 0);
    for end in [1, 7, 8, 4096, CHUNK as u64 + 3, arena.bytes()] {
        for byte in [0, 0xFF, 0x3F] {
            arena.fill_pattern().unwrap();
            arena.fill(&access(&[], &[ByteRegion::contiguous(end - 1, 1)]), byte).unwrap();
            assert_eq!(arena.highest_changed().unwrap(), end);
        }
    }
}

#[test]
fn an_empty_arena_is_an_arena() {
    let arena = Arena::new("host", 0).unwrap();
    arena.fill_pattern().unwrap();
    assert_eq!(arena.highest_changed().unwrap(), 0);
    assert!(Arena::new("host", u64::MAX).is_err());
}

#[test]
fn parts_of_sliced_rows() {
    // Two samples of three elements, four apart: a slice of [2, 4].
    assert_eq!(part_range(2, 3, 4, 1, 2), (4, 3));
    assert_eq!(part_range(2, 3, 4, 5, 6), (6, 1));
    assert_eq!(part_range(1, 6, 6, 1, 2), (3, 3));
}

#[test]
#[should_panic(expected = "crosses rows")]
fn parts_never_cross_rows() {
    part_range(2, 3, 4, 0, 1);
}

#[test]
fn pieces_of_a_batch_are_its_samples_in_order() {
    let mut data: Vec<u32> = (0..24).collect();
    // Four samples of two elements, six apart.
    let sliced = View::from_rows(&data[1..], 4, 2, 6);
    let piece = sliced.piece(1, 2);
    assert_eq!((piece.part(0, 2), piece.part(1, 2)), (&[13, 14][..], &[19, 20][..]));
    let whole = View::from_slice(&data).piece(2, 4);
    assert_eq!(whole.as_slice(), Some(&[12, 13, 14, 15, 16, 17][..]));
    let mut sliced = ViewMut::from_rows(&mut data[1..], 4, 2, 6);
    sliced.piece(3, 4).for_each_row(|row| row.fill(99));
    sliced.piece(0, 4).part(0, 1)[1] = 77;
    assert_eq!((data[1], data[2], data[18], data[19], data[20], data[21]), (1, 77, 18, 99, 99, 21));
}

#[test]
#[should_panic(expected = "do not divide into 3 pieces")]
fn samples_that_do_not_divide_have_no_pieces() {
    View::from_rows(&[0u8; 24], 4, 2, 6).piece(0, 3);
}
