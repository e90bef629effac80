//! What layers push: nodes, parameters, names, and what they refuse.

use vdnn_graph::{GraphError, Op, Role, ValueId, op};
use vdnn_layers::{
    AdaptiveAvgPool2d, AvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Init, Layer, LayerError, Linear,
    LocalResponseNorm, MaxPool2d, Mode, Net, NetOptions, Relu, Reuse, Sequential, add, concat,
};
use vdnn_tensor::DType;

fn net(mode: Mode) -> (Net, ValueId) {
    let net = Net::new("test", &NetOptions { batch_size: 2, image: [3, 8, 8], mode, ..NetOptions::default() }).unwrap();
    let image = net.image();
    (net, image)
}

fn shape(net: &Net, id: ValueId) -> Vec<u64> {
    net.ty(id).shape.dims().to_vec()
}

fn nodes(net: &Net) -> Vec<String> {
    net.graph().nodes().iter().map(|node| node.name.clone()).collect()
}

#[test]
fn every_network_has_its_four_inputs() {
    let (net, _) = net(Mode::Train);
    let inputs: Vec<String> = net.graph().values().iter().map(|v| format!("{} {}", v.name, v.ty)).collect();
    assert_eq!(inputs, ["image f32[2, 3, 8, 8]", "label i32[2]", "iteration u64[1]", "learning_rate f32[1]"]);
    assert!(net.graph().values().iter().all(|value| value.role == Role::Input));
}

#[test]
fn shapes_of_images() {
    let (mut net, image) = net(Mode::Train);
    let layers: Vec<(&str, Box<dyn Layer>, [u64; 4])> = vec![
        ("conv", Box::new(Conv2d::new(3, 4, 3).stride(2).padding(1)), [2, 4, 4, 4]),
        ("wide", Box::new(Conv2d::new(3, 4, 1).kernel([1, 5]).dilation(1)), [2, 4, 8, 4]),
        ("dilated", Box::new(Conv2d::new(3, 3, 3).dilation(2).groups(3)), [2, 3, 4, 4]),
        ("max", Box::new(MaxPool2d::new(3, 2).padding(1)), [2, 3, 4, 4]),
        ("ceil", Box::new(MaxPool2d::new(3, 2).ceil_mode()), [2, 3, 4, 4]),
        ("avg", Box::new(AvgPool2d::new(2, 2)), [2, 3, 4, 4]),
        ("adaptive", Box::new(AdaptiveAvgPool2d(3)), [2, 3, 3, 3]),
        ("lrn", Box::new(LocalResponseNorm::new(5)), [2, 3, 8, 8]),
        ("bn", Box::new(BatchNorm2d::new(3)), [2, 3, 8, 8]),
        ("relu", Box::new(Relu), [2, 3, 8, 8]),
        ("drop", Box::new(Dropout(0.5)), [2, 3, 8, 8]),
    ];
    for (name, layer, expected) in layers {
        let y = layer.push(&mut net, name, image).unwrap();
        assert_eq!(shape(&net, y), expected, "{name}");
        assert_eq!(net.graph().value(y).name, name);
    }
    assert_eq!(net.graph().layers().len(), 11, "each call is one layer");
}

#[test]
fn joins() {
    let (mut net, image) = net(Mode::Train);
    let x = Conv2d::new(3, 5, 1).push(&mut net, "conv", image).unwrap();
    let joined = concat(&mut net, "concat", &[image, x]).unwrap();
    let sum = add(&mut net, "add", joined, joined).unwrap();
    assert_eq!(shape(&net, sum), [2, 8, 8, 8]);
    let error = add(&mut net, "bad", image, x).unwrap_err().to_string();
    assert!(error.contains("bad") && error.contains("expected both operands"), "{error}");
}

#[test]
fn parameters_have_pytorchs_names_and_shapes() {
    let (mut net, image) = net(Mode::Train);
    let body = Sequential::new()
        .next(Conv2d::new(3, 4, 3).groups(1).no_bias())
        .next(BatchNorm2d::new(4))
        .then("act", Relu)
        .then("flat", Flatten)
        .next(Linear::new(4 * 6 * 6, 5));
    assert_eq!((body.len(), body.is_empty()), (5, false));
    body.push(&mut net, "body", image).unwrap();
    let persistents = net.graph().persistents().iter().map(|p| net.graph().value(p.initial));
    let listed: Vec<String> = persistents.map(|v| format!("{} {}", v.name, v.ty.shape)).collect();
    let expected = [
        "body.0.weight [4, 3, 3, 3]",
        "body.1.weight [4]",
        "body.1.bias [4]",
        "body.1.running_mean [4]",
        "body.1.running_var [4]",
        "body.4.weight [5, 144]",
        "body.4.bias [5]",
    ];
    assert_eq!(listed, expected);
    assert_eq!(nodes(&net), ["body.0", "body.1.stats", "body.1", "body.1.update", "body.act", "body.flat", "body.4"]);
    assert_eq!(net.n_parameters(), 108 + 8 + 725);
}

#[test]
fn initial_values_are_pytorchs_defaults() {
    let (mut net, image) = net(Mode::Train);
    let x = Conv2d::new(3, 4, 3).push(&mut net, "conv", image).unwrap();
    let x = BatchNorm2d::new(4).push(&mut net, "bn", x).unwrap();
    let x = Flatten.push(&mut net, "flat", x).unwrap();
    Linear::new(144, 5).init(Init::Normal { std: 0.01 }, Init::Zeros).push(&mut net, "fc", x).unwrap();
    let expected = [
        ("conv.weight", Init::KaimingUniform),
        ("conv.bias", Init::Uniform { bound: 1.0 / 27.0f64.sqrt() }),
        ("bn.weight", Init::Ones),
        ("bn.bias", Init::Zeros),
        ("bn.running_mean", Init::Zeros),
        ("bn.running_var", Init::Ones),
        ("fc.weight", Init::Normal { std: 0.01 }),
        ("fc.bias", Init::Zeros),
    ];
    assert_eq!(net.initial(), expected.map(|(name, init)| (name.to_string(), init)));
    let values: Vec<(&str, u64)> =
        net.initial_values().map(|(name, tensor)| (name, tensor.shape().elements())).collect();
    assert_eq!((values[0], values[7]), (("conv.weight", 108), ("fc.bias", 5)));
}

/// Batch norm is three nodes in training, of which one has an effect, and one without effects in evaluation.
#[test]
fn batch_norm_in_both_modes() {
    let (mut train, image) = net(Mode::Train);
    BatchNorm2d::new(3).momentum(0.2).push(&mut train, "bn", image).unwrap();
    let update = Op::BatchNormUpdate(op::BatchNormUpdate { momentum: 0.2, count: 2 * 8 * 8 });
    assert_eq!(train.graph().nodes()[2].op, update);
    let (mut eval, image) = net(Mode::Eval);
    BatchNorm2d::new(3).push(&mut eval, "bn", image).unwrap();
    let node = &eval.graph().nodes()[0];
    assert_eq!((eval.graph().nodes().len(), node.op.has_effect()), (1, false));
    let read: Vec<&str> = node.inputs.iter().map(|&id| eval.graph().value(id).name.as_str()).collect();
    assert_eq!(read, ["image", "bn.running_mean", "bn.running_var", "bn.weight", "bn.bias"]);
}

#[test]
fn what_does_nothing_pushes_nothing() {
    let (mut train, image) = net(Mode::Train);
    assert_eq!(Dropout(0.0).push(&mut train, "drop", image), Ok(image));
    assert_eq!(AdaptiveAvgPool2d(8).push(&mut train, "pool", image), Ok(image));
    assert_eq!(Sequential::new().push(&mut train, "identity", image), Ok(image));
    let (mut eval, image) = net(Mode::Eval);
    assert_eq!(Dropout(0.9).push(&mut eval, "drop", image), Ok(image));
    assert_eq!((train.graph().nodes().len(), eval.graph().layers().len()), (0, 0));
}

/// A mask belongs to the layer's name, not to the order in which layers were pushed.
#[test]
fn dropout_streams_follow_names() {
    let stream = |names: &[&str]| {
        let (mut net, image) = net(Mode::Train);
        names.iter().for_each(|name| {
            Dropout(0.5).push(&mut net, name, image).unwrap();
        });
        let ops = net.graph().nodes().iter().map(|node| match node.op {
            Op::Dropout(dropout) => dropout.stream,
            ref other => panic!("{other:?}"),
        });
        ops.collect::<Vec<_>>()
    };
    let (one, two) = (stream(&["a", "b"]), stream(&["b", "a"]));
    assert_eq!((one[0], one[1]), (two[1], two[0]));
    assert_ne!(one[0], one[1]);
}

#[test]
fn two_layers_of_one_name_are_refused() {
    let (mut net, image) = net(Mode::Train);
    Conv2d::new(3, 4, 3).push(&mut net, "conv", image).unwrap();
    let error = Conv2d::new(3, 4, 3).push(&mut net, "conv", image).unwrap_err();
    assert_eq!(error, LayerError::Graph(GraphError::DuplicateName { name: "conv.weight".to_string() }));
}

#[test]
fn a_module_called_twice_shares_its_parameters() {
    let (mut net, image) = net(Mode::Train);
    let module = || Sequential::new().next(Conv2d::new(3, 3, 3).padding(1)).next(BatchNorm2d::new(3));
    let x = module().push(&mut net, "module", image).unwrap();
    Reuse::new(module(), "module").push(&mut net, "again", x).unwrap();
    assert_eq!(net.initial().len(), 6);
    let graph = net.graph();
    let node = |name: &str| graph.nodes().iter().find(|node| node.name == name).unwrap();
    assert_eq!(node("module.0").inputs[1..], node("again.0").inputs[1..]);
    assert_eq!(
        node("module.1.update").outputs[..],
        node("again.1.update").inputs[2..],
        "statistics move on from there"
    );
    let other = Reuse::new(Conv2d::new(3, 4, 3).padding(1), "module.0");
    let error = other.push(&mut net, "other", image).unwrap_err();
    assert!(matches!(error, LayerError::SharedType { ref name, .. } if name == "module.0.weight"), "{error}");
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let (mut net, image) = net(Mode::Train);
    for (layer, words) in [
        (Box::new(Conv2d::new(3, 4, 9)) as Box<dyn Layer>, "a window of 9 does not fit an input of 8"),
        (Box::new(Conv2d::new(4, 4, 3)), "expected weights for 3 channels per group, found 4"),
        (Box::new(Conv2d::new(3, 4, 3).groups(2)), "found 2 groups"),
        (Box::new(Conv2d::new(3, 4, 3).groups(0)), "found 0 groups"),
        (Box::new(Conv2d::new(3, 4, 3).stride(0)), "at least 1"),
        (Box::new(MaxPool2d::new(2, 2).padding(2)), "at most half the kernel"),
        (Box::new(Linear::new(3, 4)), "expected X [N, in] as a matrix"),
        (Box::new(BatchNorm2d::new(4)), "expected gamma of type f32[3], found f32[4]"),
        (Box::new(Dropout(1.0)), "[0, 1)"),
    ] {
        let mut scratch = net.clone();
        let error = layer.push(&mut scratch, "the_layer", image).unwrap_err().to_string();
        assert!(error.contains("the_layer") && error.contains(words), "{error}");
    }
    let error = net.classify(image, 0.0).unwrap_err().to_string();
    assert!(error.contains("loss") && error.contains("logits"), "{error}");
}

#[test]
fn sizes_and_types_out_of_range() {
    let options = NetOptions { batch_size: u64::MAX, ..NetOptions::default() };
    assert!(matches!(Net::new("huge", &options), Err(LayerError::TooLarge { layer, .. }) if layer == "image"));
    let options = NetOptions { batch_size: 1 << 42, ..NetOptions::default() };
    let mut net = Net::new("large", &options).unwrap();
    let image = net.image();
    let error = Conv2d::new(3, 64, 3).padding(1).push(&mut net, "conv", image).unwrap_err();
    assert!(error.to_string().contains("conv") && error.to_string().contains("smaller batch"), "{error}");
    let options = NetOptions { dtype: DType::I32, ..NetOptions::default() };
    assert!(matches!(Net::new("integers", &options), Err(LayerError::Setting { .. })));
}

/// More than 2³¹ elements in one value are nothing special.
#[test]
fn sizes_beyond_32_bits_work() {
    let options = NetOptions { batch_size: 1 << 20, image: [64, 112, 112], ..NetOptions::default() };
    let mut net = Net::new("wide", &options).unwrap();
    let image = net.image();
    let y = Conv2d::new(64, 64, 3).padding(1).push(&mut net, "conv", image).unwrap();
    assert_eq!(net.ty(y).bytes(), (1u64 << 20) * 64 * 112 * 112 * 4);
}
