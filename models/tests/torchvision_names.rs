//! Parameters and states have torchvision's names, order and shapes, and there are as many of them.

use vdnn_graph::Role;
use vdnn_layers::Net;
use vdnn_models::{Options, build};

fn net(name: &str) -> Net {
    build(name, &Options { batch_size: 2, ..Options::default() }).unwrap()
}

/// `name 64x3x7x7` lines, states included, in the order in which layers create them.
fn listing(net: &Net) -> String {
    let mut lines = String::new();
    for persistent in net.graph().persistents() {
        let value = net.graph().value(persistent.initial);
        let dims: Vec<String> = value.ty.shape.dims().iter().map(u64::to_string).collect();
        lines += &format!("{} {}\n", value.name, dims.join("x"));
    }
    lines
}

fn sorted(lines: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    lines
}

macro_rules! torchvision {
    ($($test:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                let expected = include_str!(concat!("torchvision/", stringify!($test), ".txt"));
                let found = listing(&net(stringify!($test)));
                assert_eq!(sorted(expected), sorted(&found));
            }
        )*
    };
}
torchvision!(alexnet, vgg16, vgg11_bn, vgg19_bn, resnet18, resnet50, resnet152, googlenet, densenet121);

#[test]
fn parameter_counts() {
    for (name, count) in [
        ("alexnet", 61_100_840),
        ("vgg11", 132_863_336),
        ("vgg16", 138_357_544),
        ("vgg16_bn", 138_365_992),
        ("vgg19", 143_667_240),
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
        ("googlenet", 6_624_904),
        ("densenet121", 7_978_856),
    ] {
        assert_eq!(net(name).n_parameters(), count, "{name}");
    }
}

#[test]
fn running_statistics_are_states() {
    let net = net("resnet18");
    let states = net.graph().persistents().iter().map(|p| net.graph().value(p.initial));
    let states: Vec<&str> = states.filter(|v| v.role == Role::State).map(|v| v.name.as_str()).collect();
    assert_eq!(states.len(), 2 * 20);
    assert!(states.iter().all(|name| name.ends_with(".running_mean") || name.ends_with(".running_var")));
}
