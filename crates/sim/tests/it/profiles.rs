//! Recorded profiles: round trip, gaps, refusals.

use vdnn_graph::op::{Conv2d, Conv2dWeightGrad};
use vdnn_graph::{Graph, InPlace, LayerId, NodeId, Op, Phase, Program};
use vdnn_schedule::{Choice, FORMAT, Profile, ProfileEntry, kernel_key};
use vdnn_sim::{CostError, Links, Machine, ProfileCost};
use vdnn_tensor::{DType, TensorType};

/// conv (x, w) → y, relu → z, flatten → f. The convolution appears twice.
fn network() -> Program {
    let mut graph = Graph::new("net");
    let ty = |dims: [u64; 4]| TensorType::new(dims, DType::F32);
    let x = graph.input("x", ty([1, 4, 8, 8])).unwrap();
    let mut last = x;
    for name in ["conv1", "conv2"] {
        let w = graph.parameter(&format!("{name}.w"), ty([4, 4, 1, 1])).unwrap();
        last = graph.push(name, Op::Conv2d(Conv2d::default()), &[last, w]).unwrap()[0];
    }
    let z = graph.push("relu", Op::Relu, &[last]).unwrap()[0];
    graph.push("flatten", Op::Flatten, &[z]).unwrap();
    Program::linearize(graph, InPlace::Allowed).unwrap()
}

fn choice(algorithm: &str, workspace: u64, seconds: f64) -> Choice {
    Choice { algorithm: algorithm.to_string(), workspace, seconds, deterministic: false }
}

/// A profile that knows the first `n` of the network's nodes; the slower choice stands first.
fn profile(program: &Program, n: u32) -> Profile {
    let mut profile = Profile::new("Card 1", "by hand");
    (profile.d2h, profile.h2d, profile.duplex_each) = (3e9, 2e9, 1e9);
    for node in (0..n).map(NodeId) {
        let choices = vec![choice("engine0", 0, 2e-3), choice("engine5", 4096, 1e-3)];
        profile.record(kernel_key(&program.graph, program.graph.node(node)), choices);
    }
    profile
}

#[test]
fn measured_choices_come_fastest_first_and_views_need_no_measurement() {
    let program = network();
    let cost = ProfileCost::new(profile(&program, 3)).unwrap().for_device("Card 1").unwrap();
    assert_eq!(cost.profile().kernels.len(), 2, "both convolutions are one kernel");
    let estimate = cost.kernel_table(&program).unwrap();
    assert_eq!((estimate.measured, estimate.modelled_nodes()), (3, 0));
    let measured = [choice("engine5", 4096, 1e-3), choice("engine0", 0, 2e-3)];
    assert_eq!(estimate.table.of(NodeId(1)), measured);
    assert_eq!(estimate.table.of(NodeId(3))[0].seconds, 0.0);
    assert_eq!(cost.links(), Links::new(3e9, 2e9, 1e9));
}

/// Profiles from before have none; where there is one it counts more than the machine's.
#[test]
fn launch_delays_are_the_profiles_or_the_machines_or_none() {
    let mut profile = profile(&network(), 3);
    assert!(!profile.to_json().contains("launch_"), "files without them read as before");
    let h200 = Machine::named("h200").unwrap();
    let of = |profile: &Profile| {
        let links = ProfileCost::new(profile.clone()).unwrap().with_fallback(h200.clone()).links();
        (links.d2h, links.launch_delay_d2h, links.launch_delay_h2d)
    };
    assert_eq!(of(&profile), (3e9, 0.5 * 1e-6, 5.4 * 1e-6));
    profile.launch_delay_h2d = Some(2e-6);
    assert_eq!(of(&profile), (3e9, 0.5 * 1e-6, 2e-6));
    assert_eq!(Profile::parse(&profile.to_json()).as_ref(), Ok(&profile));
    assert_eq!(ProfileCost::new(profile).unwrap().links().launch_delay(true, true), 2e-6);
}

#[test]
fn gaps_are_filled_by_the_fallback_and_named() {
    let program = network();
    let titan = Machine::named("titan-x").unwrap();
    let cost = ProfileCost::new(profile(&program, 1)).unwrap().with_fallback(titan.clone());
    let estimate = cost.kernel_table(&program).unwrap();
    assert_eq!(estimate.measured, 2);
    assert_eq!(estimate.modelled.values().collect::<Vec<_>>(), [&vec![NodeId(2)]]);
    assert!(estimate.modelled.keys().all(|key| key.contains("relu")));
    assert_eq!(estimate.table.of(NodeId(2)), titan.choices(&program, NodeId(2)).unwrap());
    assert_eq!(cost.links().latency, titan.links().latency);
}

#[test]
fn without_a_fallback_gaps_are_refused() {
    let program = network();
    let error = ProfileCost::new(profile(&program, 0)).unwrap().kernel_table(&program).unwrap_err();
    let examples = vec!["conv1".to_string(), "relu".to_string()];
    assert_eq!(error, CostError::NotProfiled { device: "Card 1".to_string(), count: 2, examples });
}

#[test]
fn a_profile_survives_its_file() {
    let program = network();
    let before = profile(&program, 3);
    let text = before.to_json();
    assert_eq!(Profile::parse(&text).unwrap(), before);
    let other = text.replacen(&format!("\"format\": {FORMAT}"), "\"format\": 99", 1);
    let error = Profile::parse(&other).unwrap_err().to_string();
    assert!(error.contains("expected format 1, found 99"), "{error}");
    let error = Profile::parse(&text.replace("\"d2h\"", "\"down\"")).unwrap_err().to_string();
    assert!(error.contains("down"), "{error}");
}

#[test]
fn profiles_of_other_devices_or_with_senseless_contents_are_refused() {
    let program = network();
    let good = profile(&program, 2);
    let error = ProfileCost::new(good.clone()).unwrap().for_device("Card 2").unwrap_err();
    let expected = CostError::ProfileDevice { expected: "Card 2".to_string(), found: "Card 1".to_string() };
    assert_eq!(error, expected);

    let refused = |profile: Profile| ProfileCost::new(profile).unwrap_err().to_string();
    let format = refused(Profile { format: 7, ..good.clone() });
    assert_eq!(format, "profile of \"Card 1\": expected format 1, found 7; record it again");
    assert!(refused(Profile { h2d: 0.0, ..good.clone() }).contains("h2d: expected a positive rate"));
    let early = refused(Profile { launch_delay_d2h: Some(-1.0), ..good.clone() });
    assert!(early.contains("launch_delay_d2h: expected a time of at least 0 in seconds, found -1"), "{early}");
    let mut twice = good.clone();
    twice.kernels.push(good.kernels[0].clone());
    assert!(refused(twice).contains("expected each kernel once"));
    let mut empty = good.clone();
    empty.kernels.push(ProfileEntry { key: "k".to_string(), choices: Vec::new() });
    assert!(refused(empty).contains("at least one choice for kernel k"));
    let mut negative = good;
    negative.kernels.push(ProfileEntry { key: "k".to_string(), choices: vec![choice("a", 0, -1.0)] });
    assert!(refused(negative).contains("a of kernel k, found -1"));
}

/// Forward costs what the plain kernel does and the mask's bytes in proportion; a gradient that reads less costs the same.
#[test]
fn encoded_kernels_that_were_not_measured_cost_what_the_plain_ones_do() {
    let mut graph = Graph::new("net");
    let x = graph.input("x", TensorType::new([2, 4, 8, 8], DType::F32)).unwrap();
    let y = graph.push("relu", Op::Relu, &[x]).unwrap()[0];
    graph.push("relu.grad", Op::ReluGrad, &[y, x]).unwrap();
    let plain = Program::linearize(graph.clone(), InPlace::PersistentsOnly).unwrap();
    graph.rewrite(NodeId(0), Op::ReluMask, &[x]).unwrap();
    let mask = graph.node(NodeId(0)).outputs[1];
    graph.rewrite(NodeId(1), Op::ReluMaskGrad, &[mask, x]).unwrap();
    let encoded = Program::linearize(graph, InPlace::PersistentsOnly).unwrap();
    let cost = ProfileCost::new(profile(&plain, 2)).unwrap();
    let estimate = cost.kernel_table(&encoded).unwrap();
    assert_eq!((estimate.measured, estimate.modelled_nodes()), (2, 0));
    let forward = estimate.table.of(NodeId(0));
    assert_eq!((&*forward[0].algorithm, forward[0].workspace), ("engine5", 4096));
    assert!((forward[0].seconds / 1e-3 - (1.0 + 64.0 / 4096.0)).abs() < 1e-12, "{forward:?}");
    assert_eq!(estimate.table.of(NodeId(1)), cost.kernel_table(&plain).unwrap().table.of(NodeId(1)));
    let mut measured = profile(&plain, 2);
    measured.record(kernel_key(&encoded.graph, encoded.graph.node(NodeId(1))), vec![choice("own", 0, 5e-4)]);
    let estimate = ProfileCost::new(measured).unwrap().kernel_table(&encoded).unwrap();
    assert_eq!(estimate.table.of(NodeId(1))[0].algorithm, "own");
    let titan = Machine::named("titan-x").unwrap();
    let modelled = ProfileCost::new(profile(&plain, 0)).unwrap().with_fallback(titan.clone()).kernel_table(&encoded);
    assert_eq!(modelled.unwrap().table.of(NodeId(0)), titan.choices(&encoded, NodeId(0)).unwrap());
}

/// A convolution and its weight gradient of eight samples, of which halves and quarters may have been recorded too.
#[test]
fn pieces_are_what_was_recorded_for_fewer_samples() {
    let program = |n: u64| {
        let mut graph = Graph::new("net");
        let ty = |dims: [u64; 4]| TensorType::new(dims, DType::F32);
        let (x, w) = (graph.input("x", ty([n, 4, 8, 8])).unwrap(), graph.parameter("w", ty([4, 4, 1, 1])).unwrap());
        let conv = Conv2d::default();
        let y = graph.push("conv", Op::Conv2d(conv), &[x, w]).unwrap()[0];
        let weight = Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [1; 2] });
        graph.push_at("conv.dw", weight, &[x, y], Phase::Backward, LayerId(0)).unwrap();
        Program::linearize(graph, InPlace::Allowed).unwrap()
    };
    let mut profile = profile(&program(8), 2);
    let mut record = |n: u64, choices: Vec<Choice>| {
        let program = program(n);
        for node in program.graph.nodes() {
            profile.record(kernel_key(&program.graph, node), choices.clone());
        }
    };
    record(4, vec![choice("engine5", 2048, 0.6e-3), choice("engine7", 1024, 0.4e-3)]);
    record(2, vec![choice("engine5", 2000, 0.35e-3), choice("engine9", 0, 0.45e-3)]);
    let table = ProfileCost::new(profile).unwrap().kernel_table(&program(8)).unwrap().table;
    // Never below the whole batch's fastest; engine5 in halves and quarters is slower than engine7 and wants more.
    let expected = [choice("engine7/2", 1024, 1e-3), choice("engine9/4", 0, 4.0 * 0.45e-3)];
    assert_eq!(table.pieces_of(NodeId(0)), expected);
    let weight = table.pieces_of(NodeId(1));
    assert_eq!(
        weight.iter().map(|c| (c.algorithm.as_str(), c.workspace)).collect::<Vec<_>>(),
        [("engine7/2", 1024 + 256), ("engine9/4", 256)]
    );
    assert!(weight[1].seconds > expected[1].seconds && weight[1].seconds < expected[1].seconds + 20e-6);
    assert_eq!(table.of(NodeId(0))[0], choice("engine5", 4096, 1e-3));
}
