//! A small training iteration, once with everything kept and once with a value offloaded and brought back.

use crate::writer::{COMPUTE, OFFLOAD, PREFETCH, Writer, align};
use std::sync::Arc;
use vdnn_graph::op::{Conv2d, Conv2dWeightGrad, Sgd, SoftmaxCrossEntropy};
use vdnn_graph::{Graph, InPlace, LayerId, Op, Phase, Program, ValueId};
use vdnn_runtime::{Device, DeviceError, Executor, ScheduleId};
use vdnn_schedule::{Schedule, Space};
use vdnn_tensor::{DType, Philox, TensorType};

const CONV: Conv2d = Conv2d { stride: [1; 2], padding: [1; 2], dilation: [1; 2], groups: 1 };

fn f32s<const N: usize>(shape: [u64; N]) -> TensorType {
    TensorType::new(shape, DType::F32)
}

/// `image → conv1 → relu (in place) = r → conv2 = d → conv3 = e → flatten → loss; dw2 from r and d; w2' from dw2`.
pub fn program() -> Arc<Program> {
    let mut g = Graph::new("small");
    let image = g.input("image", f32s([2, 3, 8, 8])).unwrap();
    let labels = g.input("labels", TensorType::new([2], DType::I32)).unwrap();
    let rate = g.input("rate", f32s([1])).unwrap();
    let iteration = g.input("iteration", TensorType::new([1], DType::U64)).unwrap();
    let w1 = g.parameter("w1", f32s([4, 3, 3, 3])).unwrap();
    let w2 = g.parameter("w2", f32s([2, 4, 3, 3])).unwrap();
    let w3 = g.parameter("w3", f32s([4, 2, 3, 3])).unwrap();
    let mut push = |name: &str, op: Op, inputs: &[ValueId]| g.push(name, op, inputs).unwrap()[0];
    let c = push("c", Op::Conv2d(CONV), &[image, w1]);
    let r = push("r", Op::Relu, &[c]);
    let d = push("d", Op::Conv2d(CONV), &[r, w2]);
    let e = push("e", Op::Conv2d(CONV), &[d, w3]);
    let f = push("f", Op::Flatten, &[e]);
    push("loss", Op::SoftmaxCrossEntropy(SoftmaxCrossEntropy::default()), &[f, labels]);
    let back = Op::Conv2dWeightGrad(Conv2dWeightGrad { conv: CONV, kernel: [3, 3] });
    let dw2 = g.push_at("dw2", back, &[r, d], Phase::Backward, LayerId(0)).unwrap()[0];
    let sgd = Op::Sgd(Sgd { momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false });
    g.push_at("sgd", sgd, &[w2, dw2, rate, iteration], Phase::Update, LayerId(0)).unwrap();
    Arc::new(Program::linearize(g, InPlace::Allowed).unwrap())
}

/// Every storage has bytes of its own; nothing moves.
pub fn kept(program: &Arc<Program>) -> (Arc<Program>, Schedule) {
    let mut w = Writer::new(program);
    for value in ["r", "d", "e", "dw2"] {
        w.alloc(value, w.end(Space::Device));
    }
    for node in ["c", "r", "d", "e", "f", "loss", "dw2", "sgd"] {
        w.launch(node);
    }
    w.done()
}

/// `r` goes to the host while `e` has its bytes, and comes back into them for `dw2`.
///
/// ```text
///   compute   c r │ d ····wait·free r│ e f loss free e, alloc r'│          wait│ dw2 sgd
///   offload       └ r ──► host ──────┘                          │             │
///   prefetch                                                    └ host ──► r' ┘
/// ```
pub fn offloaded(program: &Arc<Program>) -> (Arc<Program>, Schedule) {
    let mut w = Writer::new(program);
    let shared = w.end(Space::Device);
    let d = shared + align(2 * 4 * 64 * 4);
    w.alloc("r", shared);
    w.launch("c");
    w.launch("r");
    w.order(COMPUTE, OFFLOAD, "computed r");
    let host = w.offload("r", 64);
    w.alloc("d", d);
    w.launch("d");
    w.order(OFFLOAD, COMPUTE, "offloaded r");
    w.free("r");
    w.alloc("e", shared);
    w.launch("e");
    w.launch("f");
    w.launch("loss");
    w.free("e");
    w.alloc("r", shared);
    w.order(COMPUTE, PREFETCH, "loss computed");
    w.prefetch(host, "r");
    w.order(PREFETCH, COMPUTE, "prefetched r");
    w.alloc("dw2", w.end(Space::Device));
    w.launch("dw2");
    w.free("r");
    w.free("d");
    w.launch("sgd");
    w.free("dw2");
    w.done()
}

/// An executor with one schedule, parameters and inputs written.
pub fn load<D: Device>(
    device: D,
    (program, schedule): (Arc<Program>, Schedule),
) -> Result<(Executor<D>, ScheduleId), DeviceError> {
    let (mut executor, ids) = Executor::with_schedules(device, &[(program, Arc::new(schedule))])?;
    fill(&mut executor, ids[0])?;
    Ok((executor, ids[0]))
}

pub fn fill<D: Device>(executor: &mut Executor<D>, id: ScheduleId) -> Result<(), DeviceError> {
    let mut random = Philox::new(3, 0);
    for name in ["image", "w1", "w2", "w3"] {
        let len = executor.home_bytes(id, name)? / 4;
        let values: Vec<u8> = (0..len).flat_map(|_| (random.uniform() - 0.5).to_le_bytes()).collect();
        executor.write(id, name, &values)?;
    }
    executor.write(id, "labels", &[7i32, 200].map(i32::to_le_bytes).concat())?;
    executor.write(id, "rate", &0.01f32.to_le_bytes())?;
    executor.write(id, "iteration", &0u64.to_le_bytes())
}

/// Loss and updated weights as bytes after each of `n` iterations.
pub fn train<D: Device>(executor: &mut Executor<D>, id: ScheduleId, n: usize) -> Result<Vec<u8>, DeviceError> {
    let mut seen = Vec::new();
    for _ in 0..n {
        executor.run(id)?;
        seen.extend(executor.read(id, "loss")?);
        seen.extend(executor.read(id, "w2'")?);
    }
    Ok(seen)
}
