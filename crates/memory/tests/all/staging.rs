//! Room for the inputs of the next iteration: above all homes, below everything that is planned, counted by every policy.

use crate::iteration::{Iteration, LINKS, options, sgd};
use vdnn_autograd::UpdateAt;
use vdnn_layers::{Conv2d, Flatten, Layer, Linear, Net, NetOptions, Relu, Sequential};
use vdnn_memory::{Budgets, HomeLayout, MemoryPolicy, Problem, compile_with_policy, policies};
use vdnn_schedule::Space;

fn iteration() -> Iteration {
    let mut net = Net::new("tiny", &NetOptions { batch_size: 3, image: [1, 9, 7], ..NetOptions::default() }).unwrap();
    let body = Sequential::new()
        .then("conv", Conv2d::new(1, 4, 3).padding(1))
        .then("relu", Relu)
        .then("flatten", Flatten)
        .then("fc", Linear::new(4 * 63, 5));
    let image = net.image();
    let logits = body.push(&mut net, "", image).unwrap();
    net.classify(logits, 0.0).unwrap();
    Iteration::training(net, sgd(0.9), UpdateAt::Layer)
}

fn problem<'a>(iteration: &'a Iteration, homes: &'a HomeLayout, device: Option<u64>) -> Problem<'a> {
    Problem {
        program: &iteration.program,
        kernels: &iteration.kernels,
        links: LINKS,
        homes,
        budgets: Budgets { device, ..Budgets::default() },
        options: options(),
        encoded: None,
    }
}

#[test]
fn the_region_follows_the_homes_wherever_they_are() {
    let iteration = iteration();
    let plain = &iteration.homes;
    assert_eq!((plain.staging(), plain.staged("image")), (None, None));
    let staged = plain.with_staging(&["image", "label", "no such input"]);
    let (first, bytes) = staged.staging().unwrap();
    assert_eq!(first, plain.extent().next_multiple_of(256));
    assert_eq!(bytes, (3u64 * 63 * 4).next_multiple_of(256) + 3 * 4);
    assert_eq!(staged.extent(), first + bytes);
    assert_eq!((staged.staged("image"), staged.staged("label")), (Some(first), Some(first + bytes - 12)));
    // Homes that go to host memory make room below the region.
    let streaming = staged.streaming_from(64);
    assert!(streaming.host_extent() > 0 && streaming.staging().unwrap().0 < first);
    assert_eq!(streaming.staging().unwrap().1, bytes);
    assert_eq!(streaming.extent(), streaming.staging().unwrap().0 + bytes);
}

#[test]
fn floors_and_peaks_count_it_under_every_policy() {
    let iteration = iteration();
    let staged = iteration.homes.with_staging(&["image", "label"]);
    let more = staged.extent().next_multiple_of(256) - iteration.homes.extent().next_multiple_of(256);
    for name in policies::REGISTRY.iter().map(|entry| entry.name).filter(|name| *name != "optimal") {
        let policy: Box<dyn MemoryPolicy> = policies::find(name).unwrap();
        let floor = |homes| match policy.plan(&problem(&iteration, homes, Some(1))) {
            Err(refusal) => refusal.floor,
            Ok(_) => panic!("{name}: expected one byte to be refused"),
        };
        let (without, with) = (floor(&iteration.homes), floor(&staged));
        assert_eq!(with - without, more, "{name}");
        let (schedule, _) = compile_with_policy(&problem(&iteration, &staged, Some(with)), policy.as_ref()).unwrap();
        assert!(schedule.peak_bytes(Space::Device) <= with, "{name}");
        let (first, bytes) = staged.staging().unwrap();
        assert_eq!(vdnn_check::staging(&schedule, first, bytes), vec![], "{name}");
        assert_eq!(vdnn_check::check(&schedule, &iteration.program), vec![], "{name}");
    }
}
