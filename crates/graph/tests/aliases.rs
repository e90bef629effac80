//! Which values share bytes: in-place chains, residual joins, concat slices, views, splits and persistents.

use vdnn_graph::{Graph, GraphError, InPlace, LayerId, Location, NodeId, Op, Phase, Program, ValueId, op};
use vdnn_tensor::{DType, Layout, MemoryOrder, TensorType};

/// Bytes of one `[2, 4, 3, 3]` image batch, of one sample, and of one channel.
const IMAGE: u64 = 2 * SAMPLE;
const SAMPLE: u64 = 4 * CHANNEL;
const CHANNEL: u64 = 9 * 4;

struct Builder {
    graph: Graph,
    image: ValueId,
}

impl Builder {
    fn new() -> Self {
        let mut graph = Graph::new("test");
        let image = graph.input("image", TensorType::new([2, 4, 3, 3], DType::F32)).unwrap();
        Builder { graph, image }
    }

    fn push(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> ValueId {
        self.graph.push(name, op, inputs).unwrap()[0]
    }

    /// A 1×1 convolution to `channels`: it never runs in place.
    fn conv(&mut self, name: &str, x: ValueId, channels: u64) -> ValueId {
        let from = self.graph.value(x).ty.shape.dim(1);
        let weight = TensorType::new([channels, from, 1, 1], DType::F32);
        let w = self.graph.parameter(&format!("{name}.weight"), weight).unwrap();
        self.push(name, Op::Conv2d(op::Conv2d::default()), &[x, w])
    }

    fn relu(&mut self, name: &str, x: ValueId) -> ValueId {
        self.push(name, Op::Relu, &[x])
    }

    fn add(&mut self, name: &str, a: ValueId, b: ValueId) -> ValueId {
        self.push(name, Op::Add, &[a, b])
    }

    fn concat(&mut self, name: &str, parts: &[ValueId]) -> ValueId {
        self.push(name, Op::Concat(op::Concat::default()), parts)
    }

    fn program(self) -> Program {
        Program::linearize(self.graph, InPlace::Allowed).unwrap()
    }
}

fn at(program: &Program, value: ValueId) -> Location {
    program.aliases.location(value)
}

fn same_bytes(program: &Program, a: ValueId, b: ValueId) -> bool {
    at(program, a) == at(program, b)
}

#[test]
fn relus_in_a_row_run_over_the_convolution() {
    let mut b = Builder::new();
    let x = b.conv("conv", b.image, 4);
    let y = b.relu("relu1", x);
    let z = b.relu("relu2", y);
    let program = b.program();
    assert!(same_bytes(&program, x, y) && same_bytes(&program, y, z));
    assert_eq!(at(&program, z), Location { root: x, offset: 0, rows: 1, row_bytes: IMAGE, row_stride: IMAGE });
}

#[test]
fn inputs_are_never_overwritten() {
    let mut b = Builder::new();
    let y = b.relu("relu", b.image);
    let image = b.image;
    assert!(!same_bytes(&b.program(), image, y));
}

/// A block's output is read twice, so its gradient comes in two parts: dR lies over the first, dX over the second.
#[test]
fn a_fused_gradient_lies_over_both_parts_that_it_adds() {
    let mut b = Builder::new();
    let (x, r) = (b.conv("x", b.image, 4), b.conv("r", b.image, 4));
    let vector = TensorType::new([4], DType::F32);
    let [mean, variance, gamma, beta] =
        ["mean", "variance", "gamma", "beta"].map(|name| b.graph.input(name, vector.clone()).unwrap());
    let norm = op::BatchNorm { eps: 1e-5 };
    let forward = b.graph.push("y", Op::BatchNormAddRelu(norm), &[x, mean, variance, gamma, beta, r]).unwrap();
    let (first, second) = (b.conv("first", forward[0], 4), b.conv("second", forward[0], 4));
    let inputs = [x, first, forward[1], mean, variance, gamma, second];
    let made = b.graph.push("grad", Op::BatchNormAddReluGrad(norm), &inputs).unwrap();
    let once = b.graph.push("once", Op::BatchNormAddReluGrad(norm), &inputs[..6]);
    let (dx, dr) = (made[0], made[3]);
    let program = b.program();
    // `first` is read once more, so only `second` is free to be overwritten there.
    assert!(once.is_ok() && same_bytes(&program, dx, second) && !same_bytes(&program, dr, first));
    let last = once.unwrap()[3];
    assert!(same_bytes(&program, last, first), "{:?}", at(&program, last));
}

#[test]
fn nothing_runs_in_place_when_told_so() {
    let mut b = Builder::new();
    let x = b.conv("conv", b.image, 4);
    let y = b.relu("relu", x);
    let program = Program::linearize(b.graph, InPlace::PersistentsOnly).unwrap();
    assert!(!same_bytes(&program, x, y));
}

/// The block's input is read by the addition, so the first ReLU of the branch gets bytes of its own.
#[test]
fn a_residual_branch_leaves_the_block_input_alone() {
    let mut b = Builder::new();
    let x = b.conv("conv", b.image, 4);
    let branch = b.relu("relu1", x);
    let sum = b.add("add", branch, x);
    let y = b.relu("relu2", sum);
    let program = b.program();
    assert!(!same_bytes(&program, x, branch));
    assert!(same_bytes(&program, branch, sum), "the sum lies over the branch");
    assert!(same_bytes(&program, sum, y));
}

/// Case B30: `x += …` after an in-place ReLU whose result is still needed.
#[test]
fn an_addition_does_not_overwrite_what_is_read_later() {
    let mut b = Builder::new();
    let x = b.conv("conv1", b.image, 4);
    let y = b.relu("relu", x);
    let other = b.conv("conv2", y, 4);
    let sum = b.add("add", y, other);
    let late = b.conv("conv3", y, 4);
    let program = b.program();
    assert!(!same_bytes(&program, sum, y));
    assert!(same_bytes(&program, sum, other), "the other operand is dead and may be overwritten");
    assert_ne!(program.aliases.root(late), program.aliases.root(y));
}

#[test]
fn a_value_added_to_itself_is_not_overwritten() {
    let mut b = Builder::new();
    let x = b.conv("conv", b.image, 4);
    let twice = b.add("add", x, x);
    assert!(!same_bytes(&b.program(), x, twice));
}

/// The same bytes under two names are still the same bytes.
#[test]
fn two_views_added_are_not_overwritten() {
    let mut b = Builder::new();
    let x = b.conv("conv", b.image, 4);
    let (one, two) = (b.push("flat1", Op::Flatten, &[x]), b.push("flat2", Op::Flatten, &[x]));
    let sum = b.add("add", one, two);
    let program = b.program();
    assert!(same_bytes(&program, one, two));
    assert_ne!(program.aliases.root(sum), x);
}

/// Case B30: batch norm's backward reads its input, so neither the norm nor a ReLU on that input may overwrite it.
#[test]
fn batch_norm_input_survives_for_its_gradient() {
    let mut b = Builder::new();
    let x = b.conv("conv", b.image, 4);
    let stats = b.graph.push("stats", Op::BatchNormStats, &[x]).unwrap();
    let vector = TensorType::new([4], DType::F32);
    let gamma = b.graph.parameter("gamma", vector.clone()).unwrap();
    let beta = b.graph.parameter("beta", vector).unwrap();
    let norm = op::BatchNorm { eps: 1e-5 };
    let y = b.push("bn", Op::BatchNorm(norm), &[x, stats[0], stats[1], gamma, beta]);
    let z = b.relu("relu", y);
    let on_input = b.relu("relu_on_input", x);
    let dz = b.conv("top", z, 4);
    let inputs = [x, dz, stats[0], stats[1], gamma];
    let dx = b.graph.push_at("bn_grad", Op::BatchNormGrad(norm), &inputs, Phase::Backward, LayerId(0)).unwrap()[0];
    let program = b.program();
    assert!(!same_bytes(&program, x, y), "the norm's input is read in backward");
    assert!(same_bytes(&program, y, z), "a ReLU may overwrite the norm's result");
    assert!(!same_bytes(&program, x, on_input));
    assert!(same_bytes(&program, dz, dx), "dX lies over dY");
}

/// Producers write their slices of a concatenation.
#[test]
fn concat_slices_lie_inside() {
    let mut b = Builder::new();
    let (p, q) = (b.conv("p", b.image, 4), b.conv("q", b.image, 2));
    let q = b.relu("relu", q);
    let z = b.concat("z", &[p, q]);
    let program = b.program();
    let stride = 6 * CHANNEL;
    assert_eq!(at(&program, p), Location { root: z, offset: 0, rows: 2, row_bytes: SAMPLE, row_stride: stride });
    let expected = Location { root: z, offset: SAMPLE, rows: 2, row_bytes: 2 * CHANNEL, row_stride: stride };
    assert_eq!(at(&program, q), expected);
    assert_eq!(program.aliases.storage_bytes(z), 2 * stride);
}

/// DenseNet: x_k = concat(x_{k−1}, f_k). Every map of the block lies in the last concatenation.
#[test]
fn nested_concats_are_one_storage() {
    let mut b = Builder::new();
    let x0 = b.conv("stem", b.image, 4);
    let (mut x, mut maps) = (x0, vec![]);
    for k in 0..3 {
        let f = b.conv(&format!("f{k}"), x, 2);
        x = b.concat(&format!("x{k}"), &[x, f]);
        maps.push((f, x));
    }
    let program = b.program();
    assert_eq!(at(&program, x).rows, 1);
    for (k, (f, joined)) in maps.into_iter().enumerate() {
        let k = k as u64;
        let row_stride = 10 * CHANNEL;
        let slice = |offset, channels| Location { root: x, offset, rows: 2, row_bytes: channels * CHANNEL, row_stride };
        assert_eq!(at(&program, f), slice(SAMPLE + 2 * k * CHANNEL, 2));
        if k < 2 {
            assert_eq!(at(&program, joined), slice(0, 6 + 2 * k));
        }
    }
    assert_eq!(at(&program, x0).root, x);
}

/// The bytes of a slice belong to every concatenation around it, not only to the outermost.
#[test]
fn a_slice_is_not_overwritten_while_a_concat_around_it_lives() {
    let mut b = Builder::new();
    let (stem, f) = (b.conv("stem", b.image, 4), b.conv("f", b.image, 2));
    let inner = b.concat("inner", &[stem, f]);
    let g = b.conv("g", b.image, 2);
    let outer = b.concat("outer", &[inner, g]);
    let (over_f, over_g) = (b.relu("over_f", f), b.relu("over_g", g));
    b.conv("late", inner, 4);
    let program = b.program();
    assert!([stem, f, inner, g].iter().all(|&part| program.aliases.root(part) == outer));
    assert_eq!(program.aliases.root(over_f), over_f, "the inner concatenation is read later");
    assert!(same_bytes(&program, over_g, g), "nothing reads these bytes any more");
}

#[test]
fn what_cannot_move_is_copied_into_a_concat() {
    let mut b = Builder::new();
    let p = b.conv("p", b.image, 4);
    let first = b.concat("first", &[p, b.image]);
    let second = b.concat("second", &[p, p]);
    let image = b.image;
    let program = b.program();
    assert_eq!(at(&program, p).root, first, "a part lies in the first concatenation that takes it");
    assert_eq!(at(&program, image).root, image, "inputs stay where the host wrote them");
    assert_eq!(at(&program, second).root, second);
}

/// After a concatenation its parts' bytes are its own: nothing may overwrite a part while the whole is read.
#[test]
fn parts_are_not_overwritten_while_the_whole_lives() {
    let mut b = Builder::new();
    let (p, q) = (b.conv("p", b.image, 4), b.conv("q", b.image, 4));
    let z = b.concat("z", &[p, q]);
    let late = b.relu("relu", p);
    let top = b.conv("top", z, 4);
    let program = b.program();
    assert_eq!(at(&program, p).root, z);
    assert_eq!(at(&program, late).root, late);
    assert_eq!(at(&program, top).root, top);
}

/// A ReLU over the whole must not destroy a part that is read later.
#[test]
fn the_whole_is_not_overwritten_while_a_part_lives() {
    let mut b = Builder::new();
    let (p, q) = (b.conv("p", b.image, 4), b.conv("q", b.image, 4));
    let z = b.concat("z", &[p, q]);
    let y = b.relu("relu", z);
    b.conv("late", p, 4);
    let program = b.program();
    assert!(!same_bytes(&program, z, y));
}

#[test]
fn the_whole_is_overwritten_once_the_parts_are_dead() {
    let mut b = Builder::new();
    let (p, q) = (b.conv("p", b.image, 4), b.conv("q", b.image, 4));
    let z = b.concat("z", &[p, q]);
    let y = b.relu("relu", z);
    let program = b.program();
    assert!(same_bytes(&program, z, y));
    assert_eq!(at(&program, q).root, z);
}

#[test]
fn flatten_is_a_view() {
    let mut b = Builder::new();
    let x = b.conv("conv", b.image, 4);
    let flat = b.push("flatten", Op::Flatten, &[x]);
    let of_input = b.push("flatten_input", Op::Flatten, &[b.image]);
    let late = b.conv("late", x, 4);
    let program = b.program();
    assert_eq!(at(&program, flat), at(&program, x), "even while the image is read later");
    assert_eq!(at(&program, of_input).root, of_input);
    assert_eq!(at(&program, late).root, late);
}

/// A view keeps its bytes alive: what was flattened may be dead by name and is not by bytes.
#[test]
fn views_keep_bytes_alive() {
    let mut b = Builder::new();
    let x = b.conv("conv", b.image, 4);
    let flat = b.push("flatten", Op::Flatten, &[x]);
    let y = b.relu("relu", x);
    let w = b.graph.parameter("fc.weight", TensorType::new([3, 36], DType::F32)).unwrap();
    b.push("fc", Op::Linear, &[flat, w]);
    let program = b.program();
    assert_eq!(at(&program, flat).root, x);
    assert!(!same_bytes(&program, x, y));
}

/// The gradients of a concatenation's parts stay where the whole gradient is, and may be overwritten one by one.
#[test]
fn split_parts_stay_inside_and_run_in_place() {
    let mut b = Builder::new();
    let dz = b.conv("dz", b.image, 6);
    let parts = b.graph.push("split", Op::Split(op::Split::channels(vec![4, 2])), &[dz]).unwrap();
    let y = b.conv("y", b.image, 4);
    let dx = b.push("relu_grad", Op::ReluGrad, &[y, parts[0]]);
    let program = b.program();
    let row_stride = 6 * CHANNEL;
    let first = Location { root: dz, offset: 0, rows: 2, row_bytes: SAMPLE, row_stride };
    assert_eq!((at(&program, parts[0]), at(&program, dx)), (first, first));
    assert_eq!(at(&program, parts[1]), Location { offset: SAMPLE, row_bytes: 2 * CHANNEL, ..first });
}

#[test]
fn a_part_of_a_split_is_not_overwritten_while_the_whole_is_read() {
    let mut b = Builder::new();
    let dz = b.conv("dz", b.image, 8);
    let parts = b.graph.push("split", Op::Split(op::Split::channels(vec![4, 4])), &[dz]).unwrap();
    let y = b.relu("relu", parts[1]);
    b.conv("late", dz, 4);
    let program = b.program();
    assert_eq!(at(&program, y).root, y);
}

/// What the host reads back is never overwritten and never laid over something else.
#[test]
fn values_read_back_have_bytes_of_their_own() {
    let mut b = Builder::new();
    let x = b.conv("conv", b.image, 4);
    let y = b.relu("relu", x);
    let z = b.relu("relu2", y);
    b.graph.read_back(y);
    b.graph.read_back(y);
    assert_eq!(b.graph.metrics(), [y]);
    let program = b.program();
    let roots = [x, y, z].map(|value| at(&program, value).root);
    assert_eq!(roots, [x, y, z]);
}

fn sgd(b: &mut Builder, name: &str, w: ValueId, dw: ValueId, scalars: [ValueId; 2]) -> Result<ValueId, GraphError> {
    let sgd = op::Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: false };
    let ty = b.graph.value(w).ty.clone();
    let momentum = b.graph.state(&format!("{name}.momentum"), ty)?;
    let inputs = [w, dw, momentum, scalars[0], scalars[1]];
    Ok(b.graph.push_at(name, Op::Sgd(sgd), &inputs, Phase::Update, LayerId(0))?[0])
}

fn scalars(b: &mut Builder) -> [ValueId; 2] {
    let rate = b.graph.input("learning_rate", TensorType::new([1], DType::F32)).unwrap();
    [rate, b.graph.input("iteration", TensorType::new([1], DType::U64)).unwrap()]
}

#[test]
fn updated_persistents_keep_their_home() {
    let mut b = Builder::new();
    let ty = TensorType::new([4], DType::F32);
    let (w, dw) = (b.graph.parameter("w", ty.clone()).unwrap(), b.graph.input("dw", ty).unwrap());
    let scalars = scalars(&mut b);
    let updated = sgd(&mut b, "w.update", w, dw, scalars).unwrap();
    assert_eq!(b.graph.latest(w), updated);
    assert_eq!(b.graph.value(updated).name, "w'");
    assert!(b.graph.persistents().iter().all(|p| p.initial != p.last));
    let program = Program::linearize(b.graph, InPlace::PersistentsOnly).unwrap();
    assert!(same_bytes(&program, w, updated));
}

#[test]
fn a_read_after_the_update_is_refused_by_name() {
    let mut b = Builder::new();
    let x = b.conv("conv1", b.image, 4);
    let w = b.graph.find_value("conv1.weight").unwrap();
    let scalars = scalars(&mut b);
    let gradient = op::Conv2dWeightGrad { conv: op::Conv2d::default(), kernel: [1, 1] };
    let dw = b.push("dw", Op::Conv2dWeightGrad(gradient), &[b.image, x]);
    sgd(&mut b, "update", w, dw, scalars).unwrap();
    b.push("late", Op::Conv2d(op::Conv2d::default()), &[b.image, w]);
    let error = Program::linearize(b.graph, InPlace::Allowed).unwrap_err();
    let [value, reader, writer] = ["conv1.weight", "late", "update"].map(str::to_string);
    assert_eq!(error, GraphError::ReadAfterUpdate { value, reader, writer });
}

/// Running statistics of a module that runs twice in an iteration: the second use starts from the first's result.
#[test]
fn a_state_moved_on_twice_keeps_one_home() {
    let mut b = Builder::new();
    let ty = TensorType::new([4], DType::F32);
    let running = ["mean", "var"].map(|name| b.graph.state(name, ty.clone()).unwrap());
    let mut versions = vec![running];
    for call in 0..2 {
        let stats = b.graph.push(&format!("stats{call}"), Op::BatchNormStats, &[b.image]).unwrap();
        let latest = running.map(|state| b.graph.latest(state));
        let update = Op::BatchNormUpdate(op::BatchNormUpdate { momentum: 0.1, count: 18 });
        let inputs = [stats[0], stats[1], latest[0], latest[1]];
        let moved = b.graph.push(&format!("update{call}"), update, &inputs).unwrap();
        versions.push([moved[0], moved[1]]);
    }
    let ends: Vec<ValueId> = b.graph.persistents().iter().map(|p| p.last).collect();
    assert_eq!(ends, versions[2]);
    let program = b.program();
    assert!(versions.iter().all(|v| program.aliases.root(v[0]) == running[0]));
}

#[test]
fn an_order_of_ones_own_is_checked() {
    let mut b = Builder::new();
    let x = b.conv("conv", b.image, 4);
    b.relu("relu", x);
    let backwards = vec![NodeId(1), NodeId(0)];
    let error = Program::with_order(b.graph.clone(), backwards, InPlace::Allowed).unwrap_err();
    assert_eq!(error, GraphError::Order { node: "relu".to_string(), value: "conv".to_string() });
    let partial = Program::with_order(b.graph, vec![NodeId(0)], InPlace::Allowed).unwrap_err();
    assert!(matches!(partial, GraphError::Order { node, .. } if node == "relu"));
}

/// Every gradient is unscaled over itself, save those that are read again; the scale and its counters move in place.
#[test]
fn unscaled_gradients_lie_over_scaled_ones() {
    let mut b = Builder::new();
    let like = |dims: &[u64]| TensorType::new(dims, DType::F32);
    let scale = b.graph.state("scale", like(&[1])).unwrap();
    let counts = ["good", "skipped"].map(|name| b.graph.state(name, TensorType::new([1], DType::I32)).unwrap());
    let (guard, iteration) = (b.graph.input("guard", like(&[1])).unwrap(), TensorType::new([1], DType::U64));
    let iteration = b.graph.input("iteration", iteration).unwrap();
    let gradients = ["a", "b", "c"].map(|name| {
        let x = b.conv(name, b.image, 4);
        b.push(&format!("{name}.grad"), Op::BiasGrad, &[x])
    });
    let unscale = Op::Unscale(op::Unscale { gradients: 3 });
    let made = b.graph.push("unscale", unscale, &[&[scale, guard], &gradients[..]].concat()).unwrap();
    let update = Op::LossScaleUpdate(op::LossScaleUpdate::default());
    let moved = b.graph.push("update", update, &[scale, counts[0], counts[1], made[0], iteration]).unwrap();
    b.add("again", gradients[1], made[2]);
    assert_eq!(b.graph.value(moved[3]).name, "update.step");
    let program = b.program();
    let over = [0, 1, 2].map(|index| same_bytes(&program, gradients[index], made[index + 1]));
    assert_eq!(over, [true, false, true]);
    assert!(!same_bytes(&program, guard, made[0]));
    for (before, after) in [scale, counts[0], counts[1]].into_iter().zip(&moved) {
        assert!(same_bytes(&program, before, *after));
    }
}

#[test]
fn loss_scaling_refuses_by_name() {
    let mut b = Builder::new();
    let mut state = |name: &str, dims: &[u64], dtype| b.graph.state(name, TensorType::new(dims, dtype)).unwrap();
    let (one, two) = (state("one", &[1], DType::F32), state("two", &[2], DType::F32));
    let (count, counter) = (state("count", &[1], DType::I32), state("counter", &[1], DType::U64));
    let layout = Layout { order: MemoryOrder::Nhwc, channel_padding: 5 };
    let padded = b.graph.state("padded", TensorType { layout, ..TensorType::new([1, 3, 2, 2], DType::F16) }).unwrap();
    let mut refused = |op: Op, inputs: &[ValueId]| b.graph.push("node", op, inputs).unwrap_err().to_string();
    let unscale = |gradients| Op::Unscale(op::Unscale { gradients });
    assert!(refused(unscale(0), &[one, one]).contains("expected 1 to 64 gradients, found 0"));
    assert!(refused(unscale(65), &vec![one; 67]).contains("found 65"));
    assert!(refused(unscale(1), &[one, one]).contains("expected 3 to 3 inputs"));
    assert!(refused(unscale(1), &[one, two, two]).contains("guard"));
    assert!(refused(unscale(1), &[one, one, count]).contains("found i32[1]"));
    assert!(refused(unscale(1), &[one, one, padded]).contains("without padding, found f16[1, 3, 2, 2]"));
    let update = op::LossScaleUpdate::default();
    assert!(refused(Op::LossScaleUpdate(update), &[one, one, count, one, counter]).contains("good steps"));
    let backwards = Op::LossScaleUpdate(op::LossScaleUpdate { least: 4.0, most: 2.0, ..update });
    assert!(refused(backwards, &[one, count, count, one, counter]).contains("least ≤ most"));
}
