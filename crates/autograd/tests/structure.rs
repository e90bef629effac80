//! The shape of differentiated graphs: which nodes, in which order, under which names.

use expect_test::{Expect, expect};
use vdnn_autograd::{AutogradError, Optimizer, Options, Root, TrainGraph, UpdateAt, differentiate};
use vdnn_graph::{Graph, InPlace, Op, Phase, Program, Role, ValueId, op};
use vdnn_layers::{
    BatchNorm2d, Conv2d, Dropout, Flatten, Layer, LayerError, Linear, MaxPool2d, Mode, Net, NetOptions, Relu, Reuse,
    add, concat,
};
use vdnn_tensor::{DType, TensorType};

fn net(mode: Mode) -> (Net, ValueId) {
    let options = NetOptions { batch_size: 2, image: [3, 4, 4], mode, ..NetOptions::default() };
    let net = Net::new("test", &options).unwrap();
    let image = net.image();
    (net, image)
}

fn sgd(momentum: f64) -> Optimizer {
    Optimizer::Sgd(op::Sgd { momentum, dampening: 0.0, weight_decay: 1e-4, nesterov: false })
}

fn train(net: Net, options: impl FnOnce(Options) -> Options) -> TrainGraph {
    let loss = net.loss().unwrap();
    let train = differentiate(net.into_graph(), &options(Options::train(loss, sgd(0.0)))).unwrap();
    Program::linearize(train.graph.clone(), InPlace::Allowed).unwrap();
    train
}

/// Everything after the forward pass, one node a line.
fn backward(graph: &Graph) -> String {
    let text = graph.to_string();
    let forward = graph.nodes().iter().filter(|node| node.phase == Phase::Forward).count();
    text.lines().skip(1 + forward).map(|line| format!("{}\n", line.trim())).collect()
}

fn check(graph: &Graph, expect: Expect) {
    expect.assert_eq(&backward(graph));
}

fn head(net: &mut Net, x: ValueId) -> Result<(), LayerError> {
    let x = Flatten.push(net, "flatten", x)?;
    let x = Linear::new(net.channels(x), 5).push(net, "fc", x)?;
    net.classify(x, 0.0)
}

/// conv, relu, pool, linear.
fn plain() -> Net {
    let (mut net, image) = net(Mode::Train);
    let x = Conv2d::new(3, 4, 3).padding(1).push(&mut net, "conv", image).unwrap();
    let x = Relu.push(&mut net, "relu", x).unwrap();
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool", x).unwrap();
    head(&mut net, x).unwrap();
    net
}

#[test]
fn weight_gradient_then_data_gradient_then_update() {
    check(
        &train(plain(), |o| o).graph,
        expect![[r#"
        %fc.grad = softmax_cross_entropy_grad[loss.data_grad](%fc, %label) : f32[2, 5]
        %fc.weight.grad = linear_weight_grad[fc.weight_grad](%flatten, %fc.grad) : f32[5, 16]
        %fc.bias.grad = bias_grad[fc.bias_grad](%fc.grad) : f32[5]
        %flatten.grad = linear_data_grad[fc.data_grad](%fc.grad, %fc.weight) : f32[2, 16]
        %fc.weight' = sgd[fc.weight.update](%fc.weight, %fc.weight.grad, %learning_rate, %iteration, %loss) : f32[5, 16]
        %fc.bias' = sgd[fc.bias.update](%fc.bias, %fc.bias.grad, %learning_rate, %iteration, %loss) : f32[5]
        %pool.grad = unflatten[flatten.data_grad](%flatten.grad) : f32[2, 4, 2, 2]
        %relu.grad = max_pool2d_grad[pool.data_grad](%relu, %pool, %pool.grad) : f32[2, 4, 4, 4]
        %conv.grad = relu_grad[relu.data_grad](%relu, %relu.grad) : f32[2, 4, 4, 4]
        %conv.weight.grad = conv2d_weight_grad[conv.weight_grad](%image, %conv.grad) : f32[4, 3, 3, 3]
        %conv.bias.grad = bias_grad[conv.bias_grad](%conv.grad) : f32[4]
        %conv.weight' = sgd[conv.weight.update](%conv.weight, %conv.weight.grad, %learning_rate, %iteration, %loss) : f32[4, 3, 3, 3]
        %conv.bias' = sgd[conv.bias.update](%conv.bias, %conv.bias.grad, %learning_rate, %iteration, %loss) : f32[4]
    "#]],
    );
}

#[test]
fn updates_at_the_end() {
    let train = train(plain(), |o| Options { update_at: UpdateAt::End, ..o });
    let phases: Vec<Phase> = train.graph.nodes().iter().map(|node| node.phase).collect();
    assert!(phases.is_sorted(), "forward, backward, update");
    assert_eq!(phases.iter().filter(|phase| **phase == Phase::Update).count(), 4);
}

#[test]
fn a_residual_block_sums_as_contributions_arrive() {
    let (mut net, image) = net(Mode::Train);
    let x = Conv2d::new(3, 4, 3).padding(1).no_bias().push(&mut net, "conv1", image).unwrap();
    let y = BatchNorm2d::new(4).push(&mut net, "bn", x).unwrap();
    let y = Relu.push(&mut net, "relu", y).unwrap();
    let y = Conv2d::new(4, 4, 3).padding(1).no_bias().push(&mut net, "conv2", y).unwrap();
    let y = add(&mut net, "add", y, x).unwrap();
    let y = Relu.push(&mut net, "relu2", y).unwrap();
    head(&mut net, y).unwrap();
    check(
        &train(net, |o| o).graph,
        expect![[r#"
        %fc.grad = softmax_cross_entropy_grad[loss.data_grad](%fc, %label) : f32[2, 5]
        %fc.weight.grad = linear_weight_grad[fc.weight_grad](%flatten, %fc.grad) : f32[5, 64]
        %fc.bias.grad = bias_grad[fc.bias_grad](%fc.grad) : f32[5]
        %flatten.grad = linear_data_grad[fc.data_grad](%fc.grad, %fc.weight) : f32[2, 64]
        %fc.weight' = sgd[fc.weight.update](%fc.weight, %fc.weight.grad, %learning_rate, %iteration, %loss) : f32[5, 64]
        %fc.bias' = sgd[fc.bias.update](%fc.bias, %fc.bias.grad, %learning_rate, %iteration, %loss) : f32[5]
        %relu2.grad = unflatten[flatten.data_grad](%flatten.grad) : f32[2, 4, 4, 4]
        %add.grad = relu_grad[relu2.data_grad](%relu2, %relu2.grad) : f32[2, 4, 4, 4]
        %conv2.weight.grad = conv2d_weight_grad[conv2.weight_grad](%relu, %add.grad) : f32[4, 4, 3, 3]
        %relu.grad = conv2d_data_grad[conv2.data_grad](%add.grad, %conv2.weight) : f32[2, 4, 4, 4]
        %conv2.weight' = sgd[conv2.weight.update](%conv2.weight, %conv2.weight.grad, %learning_rate, %iteration, %loss) : f32[4, 4, 3, 3]
        %bn.grad = relu_grad[relu.data_grad](%relu, %relu.grad) : f32[2, 4, 4, 4]
        %bn.data_grad.dx, %bn.weight.grad, %bn.bias.grad = batch_norm_grad[bn.data_grad](%conv1, %bn.grad, %bn.stats.mean, %bn.stats.variance, %bn.weight) : f32[2, 4, 4, 4], f32[4], f32[4]
        %conv1.grad = add[conv1.grad_sum](%add.grad, %bn.data_grad.dx) : f32[2, 4, 4, 4]
        %bn.weight' = sgd[bn.weight.update](%bn.weight, %bn.weight.grad, %learning_rate, %iteration, %loss) : f32[4]
        %bn.bias' = sgd[bn.bias.update](%bn.bias, %bn.bias.grad, %learning_rate, %iteration, %loss) : f32[4]
        %conv1.weight.grad = conv2d_weight_grad[conv1.weight_grad](%image, %conv1.grad) : f32[4, 3, 3, 3]
        %conv1.weight' = sgd[conv1.weight.update](%conv1.weight, %conv1.weight.grad, %learning_rate, %iteration, %loss) : f32[4, 3, 3, 3]
    "#]],
    );
}

#[test]
fn a_dense_block_splits_and_sums() {
    let (mut net, image) = net(Mode::Train);
    let x = Conv2d::new(3, 4, 1).no_bias().push(&mut net, "stem", image).unwrap();
    let f = Conv2d::new(4, 2, 3).padding(1).no_bias().push(&mut net, "f", x).unwrap();
    let x = concat(&mut net, "concat", &[x, f]).unwrap();
    head(&mut net, x).unwrap();
    check(
        &train(net, |o| o).graph,
        expect![[r#"
        %fc.grad = softmax_cross_entropy_grad[loss.data_grad](%fc, %label) : f32[2, 5]
        %fc.weight.grad = linear_weight_grad[fc.weight_grad](%flatten, %fc.grad) : f32[5, 96]
        %fc.bias.grad = bias_grad[fc.bias_grad](%fc.grad) : f32[5]
        %flatten.grad = linear_data_grad[fc.data_grad](%fc.grad, %fc.weight) : f32[2, 96]
        %fc.weight' = sgd[fc.weight.update](%fc.weight, %fc.weight.grad, %learning_rate, %iteration, %loss) : f32[5, 96]
        %fc.bias' = sgd[fc.bias.update](%fc.bias, %fc.bias.grad, %learning_rate, %iteration, %loss) : f32[5]
        %concat.grad = unflatten[flatten.data_grad](%flatten.grad) : f32[2, 6, 4, 4]
        %concat.data_grad.0, %f.grad = split[concat.data_grad](%concat.grad) : f32[2, 4, 4, 4], f32[2, 2, 4, 4]
        %f.weight.grad = conv2d_weight_grad[f.weight_grad](%stem, %f.grad) : f32[2, 4, 3, 3]
        %f.data_grad = conv2d_data_grad[f.data_grad](%f.grad, %f.weight) : f32[2, 4, 4, 4]
        %stem.grad = add[stem.grad_sum](%concat.data_grad.0, %f.data_grad) : f32[2, 4, 4, 4]
        %f.weight' = sgd[f.weight.update](%f.weight, %f.weight.grad, %learning_rate, %iteration, %loss) : f32[2, 4, 3, 3]
        %stem.weight.grad = conv2d_weight_grad[stem.weight_grad](%image, %stem.grad) : f32[4, 3, 1, 1]
        %stem.weight' = sgd[stem.weight.update](%stem.weight, %stem.weight.grad, %learning_rate, %iteration, %loss) : f32[4, 3, 1, 1]
    "#]],
    );
}

/// Case B31: a branch whose result nobody uses has no gradient, and its parameters no update.
#[test]
fn an_unused_branch_gets_nothing() {
    let mut net = plain();
    let image = net.image();
    let side = Conv2d::new(3, 8, 1).push(&mut net, "side", image).unwrap();
    Relu.push(&mut net, "side.relu", side).unwrap();
    let train = train(net, |o| o);
    let of_side = |name: &str| name.starts_with("side");
    let late = train.graph.nodes().iter().filter(|node| node.phase != Phase::Forward);
    assert_eq!(late.filter(|node| of_side(&node.name)).count(), 0);
    assert!(!train.gradients.contains_key(&side));
    let kept = train.graph.persistents().iter().filter(|p| p.initial == p.last);
    assert_eq!(kept.filter(|p| of_side(&train.graph.value(p.initial).name)).count(), 2);
}

/// Case B31: a module called twice is summed first and updated once, after the last read of its weights.
#[test]
fn shared_parameters_are_summed_and_updated_once() {
    let (mut net, image) = net(Mode::Train);
    let conv = Conv2d::new(3, 3, 3).padding(1);
    let x = conv.push(&mut net, "conv", image).unwrap();
    let x = Relu.push(&mut net, "relu", x).unwrap();
    let x = Reuse::new(conv, "conv").push(&mut net, "again", x).unwrap();
    head(&mut net, x).unwrap();
    assert_eq!(net.initial().len(), 4);
    let graph = train(net, |o| o).graph;
    let sum = graph.find_value("conv.weight.grad").unwrap();
    assert_eq!(graph.value(sum).role, Role::ParameterGradient);
    check(
        &graph,
        expect![[r#"
        %fc.grad = softmax_cross_entropy_grad[loss.data_grad](%fc, %label) : f32[2, 5]
        %fc.weight.grad = linear_weight_grad[fc.weight_grad](%flatten, %fc.grad) : f32[5, 48]
        %fc.bias.grad = bias_grad[fc.bias_grad](%fc.grad) : f32[5]
        %flatten.grad = linear_data_grad[fc.data_grad](%fc.grad, %fc.weight) : f32[2, 48]
        %fc.weight' = sgd[fc.weight.update](%fc.weight, %fc.weight.grad, %learning_rate, %iteration, %loss) : f32[5, 48]
        %fc.bias' = sgd[fc.bias.update](%fc.bias, %fc.bias.grad, %learning_rate, %iteration, %loss) : f32[5]
        %again.grad = unflatten[flatten.data_grad](%flatten.grad) : f32[2, 3, 4, 4]
        %again.weight_grad = conv2d_weight_grad[again.weight_grad](%relu, %again.grad) : f32[3, 3, 3, 3]
        %again.bias_grad = bias_grad[again.bias_grad](%again.grad) : f32[3]
        %relu.grad = conv2d_data_grad[again.data_grad](%again.grad, %conv.weight) : f32[2, 3, 4, 4]
        %conv.grad = relu_grad[relu.data_grad](%relu, %relu.grad) : f32[2, 3, 4, 4]
        %conv.weight_grad = conv2d_weight_grad[conv.weight_grad](%image, %conv.grad) : f32[3, 3, 3, 3]
        %conv.weight.grad = add[conv.weight.grad_sum](%again.weight_grad, %conv.weight_grad) : f32[3, 3, 3, 3]
        %conv.bias_grad = bias_grad[conv.bias_grad](%conv.grad) : f32[3]
        %conv.bias.grad = add[conv.bias.grad_sum](%again.bias_grad, %conv.bias_grad) : f32[3]
        %conv.weight' = sgd[conv.weight.update](%conv.weight, %conv.weight.grad, %learning_rate, %iteration, %loss) : f32[3, 3, 3, 3]
        %conv.bias' = sgd[conv.bias.update](%conv.bias, %conv.bias.grad, %learning_rate, %iteration, %loss) : f32[3]
    "#]],
    );
}

/// The second use of a batch norm starts from the running statistics that the first has moved on (cases B12, B15).
#[test]
fn a_shared_norm_moves_its_statistics_on_twice() {
    let (mut net, image) = net(Mode::Train);
    let norm = BatchNorm2d::new(3);
    let x = norm.push(&mut net, "bn", image).unwrap();
    let x = Reuse::new(norm, "bn").push(&mut net, "again", x).unwrap();
    head(&mut net, x).unwrap();
    let graph = train(net, |o| o).graph;
    let updates: Vec<_> = graph.nodes().iter().filter(|node| matches!(node.op, Op::BatchNormUpdate(_))).collect();
    assert_eq!(updates.len(), 2);
    assert_eq!(updates[0].outputs[..], updates[1].inputs[2..]);
    assert_eq!(graph.latest(graph.find_value("bn.running_mean").unwrap()), updates[1].outputs[0]);
}

/// Running statistics are buffers: not trained, not decayed (case B12).
#[test]
fn states_are_not_trained() {
    let (mut net, image) = net(Mode::Train);
    let x = BatchNorm2d::new(3).push(&mut net, "bn", image).unwrap();
    head(&mut net, x).unwrap();
    let graph = train(net, |o| o).graph;
    let trained: Vec<&str> =
        graph.nodes().iter().filter(|n| n.phase == Phase::Update).map(|n| n.name.as_str()).collect();
    assert_eq!(trained, ["fc.weight.update", "fc.bias.update", "bn.weight.update", "bn.bias.update"]);
}

fn decay_of(graph: &Graph, parameter: &str) -> f64 {
    let name = format!("{parameter}.update");
    match graph.nodes().iter().find(|node| node.name == name).map(|node| &node.op) {
        Some(Op::Sgd(sgd)) => sgd.weight_decay,
        Some(Op::Adam(adam)) => adam.weight_decay,
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn decay_of_vectors_is_optional() {
    let all = train(plain(), |o| o).graph;
    let matrices = train(plain(), |o| Options { decay_vectors: false, ..o }).graph;
    assert_eq!((decay_of(&all, "conv.weight"), decay_of(&all, "conv.bias")), (1e-4, 1e-4));
    assert_eq!((decay_of(&matrices, "conv.weight"), decay_of(&matrices, "conv.bias")), (1e-4, 0.0));
}

#[test]
fn optimizer_buffers_are_states() {
    let names = |optimizer| {
        let graph = train(plain(), |o| Options { optimizer, ..o }).graph;
        let states = graph.persistents().iter().map(|p| (graph.value(p.initial), p.initial == p.last));
        let states = states.filter(|(value, _)| value.role == Role::State);
        states.map(|(value, unchanged)| (value.name.clone(), unchanged)).collect::<Vec<_>>()
    };
    let adam = op::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: true };
    assert_eq!(names(sgd(0.0)), []);
    let momenta = ["fc.weight", "fc.bias", "conv.weight", "conv.bias"];
    assert_eq!(names(sgd(0.9)), momenta.map(|name| (format!("{name}.momentum"), false)));
    let moments = momenta.iter().flat_map(|name| ["exp_avg", "exp_avg_sq"].map(|m| (format!("{name}.{m}"), false)));
    assert_eq!(names(Optimizer::Adam(adam)), moments.collect::<Vec<_>>());
}

#[test]
fn kept_gradients_are_read_back() {
    let net = plain();
    let graph = net.graph();
    let keep = ["image", "relu", "conv.weight"].map(|name| graph.find_value(name).unwrap());
    let image = keep[0];
    let train = train(net, |o| Options { optimizer: Optimizer::None, keep: keep.to_vec(), ..o });
    for value in keep {
        let gradient = train.graph.value(train.gradients[&value]);
        assert_eq!(gradient.role, Role::Metric);
        assert_eq!(gradient.name, format!("{}.grad", train.graph.value(value).name));
        assert!(train.graph.metrics().contains(&train.gradients[&value]));
    }
    assert!(train.gradients.contains_key(&image), "the image's gradient exists because it was asked for");
    assert!(train.graph.nodes().iter().all(|node| node.phase != Phase::Update));
}

#[test]
fn any_value_can_be_the_root() {
    let net = plain();
    let root = net.graph().find_value("pool").unwrap();
    let options = Options::new(Root::Value { value: root, seed_name: "seed".to_string() });
    let train = differentiate(net.into_graph(), &options).unwrap();
    let seed = train.seed.unwrap();
    assert_eq!(train.graph.value(seed).ty, train.graph.value(root).ty);
    assert_eq!(train.gradients[&root], seed);
    assert!(train.graph.find_value("fc.weight.grad").is_none(), "the root does not depend on it");
    assert!(train.graph.find_value("conv.weight.grad").is_some());
}

/// Dropout's gradient uses the forward's mask: the same attributes and the same counter (case B29).
#[test]
fn dropout_gradient_repeats_the_mask() {
    let (mut net, image) = net(Mode::Train);
    let x = Conv2d::new(3, 4, 1).push(&mut net, "conv", image).unwrap();
    let x = Dropout(0.5).push(&mut net, "drop", x).unwrap();
    head(&mut net, x).unwrap();
    let graph = train(net, |o| o).graph;
    let node = |name: &str| graph.nodes().iter().find(|node| node.name == name).unwrap();
    let (forward, gradient) = (node("drop"), node("drop.data_grad"));
    let Op::Dropout(attributes) = forward.op else { panic!("{:?}", forward.op) };
    assert_eq!(gradient.op, Op::DropoutGrad(attributes));
    assert_eq!(forward.inputs[1], gradient.inputs[1]);
}

/// Parts of a split that nobody uses have a gradient of zero.
#[test]
fn an_unused_part_of_a_split_is_zero() {
    let mut graph = Graph::new("split");
    let w = graph.parameter("w", TensorType::new([2, 4, 2, 2], DType::F32)).unwrap();
    let parts = graph.push("split", Op::Split(op::Split::channels(vec![1, 3])), &[w]).unwrap();
    let options = Options::new(Root::Value { value: parts[1], seed_name: "seed".to_string() });
    let train = differentiate(graph, &options).unwrap();
    check(
        &train.graph,
        expect![[r#"
        %w.grad = concat[split.data_grad](%split.0.zero_grad, %seed) : f32[2, 4, 2, 2]
    "#]],
    );
}

fn refusal(graph: Graph, options: &Options) -> String {
    differentiate(graph, options).expect_err("there is no gradient").to_string()
}

#[test]
fn what_has_no_gradient_is_said_in_words() {
    let net = plain();
    let (image, loss, logits) = (net.image(), net.loss().unwrap(), net.logits().unwrap());
    let graph = net.into_graph();
    let message = refusal(graph.clone(), &Options::train(logits, Optimizer::None));
    assert!(message.contains("fc") && message.contains("linear") && message.contains("Root::Value"), "{message}");
    let message = refusal(graph.clone(), &Options::new(Root::Value { value: image, seed_name: "seed".to_string() }));
    assert!(message.contains("image depends on no parameter"), "{message}");
    let trained = differentiate(graph.clone(), &Options::train(loss, Optimizer::None)).unwrap().graph;
    let message = refusal(trained, &Options::train(loss, Optimizer::None));
    assert!(message.contains("loss.data_grad"), "{message}");
    let accuracy = graph.find_value("accuracy").unwrap();
    let message = refusal(graph.clone(), &Options::new(Root::Value { value: accuracy, seed_name: "seed".to_string() }));
    assert!(message.contains("right answers"), "{message}");
    let keep = vec![graph.find_value("label").unwrap()];
    let message = refusal(graph, &Options { keep, ..Options::train(loss, Optimizer::None) });
    assert!(message.contains("label has no gradient"), "{message}");
}

/// Evaluation's batch norm has no gradient here, and says so before anything runs.
#[test]
fn a_network_built_for_evaluation_is_refused() {
    let (mut net, image) = net(Mode::Eval);
    let x = Conv2d::new(3, 4, 1).push(&mut net, "conv", image).unwrap();
    let x = BatchNorm2d::new(4).push(&mut net, "bn", x).unwrap();
    head(&mut net, x).unwrap();
    let loss = net.loss().unwrap();
    let error = differentiate(net.into_graph(), &Options::train(loss, sgd(0.0))).unwrap_err();
    assert!(matches!(&error, AutogradError::NotDifferentiable { node, .. } if node == "bn"), "{error}");
    assert!(error.to_string().contains("training mode"));
}
