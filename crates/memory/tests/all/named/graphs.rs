//! The shapes. Each has at most twelve steps, counted over forward, backward and updates.

use super::stage::Stage;
use vdnn_graph::Program;

/// A shape and its name.
pub type Named = (&'static str, fn(&str) -> Program);

/// All shapes.
pub const GRAPHS: [Named; 26] = [
    ("chain", chain),
    ("chain-relu", chain_relu),
    ("frozen-relu", frozen_relu),
    ("wide-then-narrow", wide_then_narrow),
    ("narrow-then-wide", narrow_then_wide),
    ("bottleneck", bottleneck),
    ("residual", residual),
    ("residual-relu", residual_relu),
    ("two-residuals", two_residuals),
    ("long-skip", long_skip),
    ("concat", concat),
    ("concat-of-three", concat_of_three),
    ("dense-block", dense_block),
    ("three-readers", three_readers),
    ("max-pools", max_pools),
    ("avg-pool", avg_pool),
    ("pyramid", pyramid),
    ("dropout", dropout),
    ("dropout-residual", dropout_residual),
    ("norm", norm),
    ("norms", norms),
    ("pool-beside-conv", pool_beside_conv),
    ("perceptron", perceptron),
    ("perceptron-wide", perceptron_wide),
    ("perceptron-frozen", perceptron_frozen),
    ("autoencoder", autoencoder),
];

fn chain(name: &str) -> Program {
    let mut stage = Stage::images(name, 8);
    let x = stage.trained(stage.image(), 8);
    let x = stage.trained(x, 8);
    let x = stage.trained(x, 8);
    stage.finish(x)
}

fn chain_relu(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 8);
    let x = stage.relu(x);
    let x = stage.trained(x, 12);
    let x = stage.relu(x);
    stage.finish(x)
}

fn frozen_relu(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let mut x = stage.image();
    for channels in [8, 12, 8] {
        x = stage.frozen(x, channels);
        x = stage.relu(x);
    }
    stage.finish(x)
}

fn wide_then_narrow(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 32);
    let x = stage.trained(x, 12);
    let x = stage.trained(x, 4);
    stage.finish(x)
}

fn narrow_then_wide(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 4);
    let x = stage.trained(x, 12);
    let x = stage.trained(x, 32);
    stage.finish(x)
}

fn bottleneck(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 16);
    let x = stage.relu(x);
    let x = stage.frozen(x, 4);
    let x = stage.relu(x);
    let x = stage.frozen(x, 16);
    stage.finish(x)
}

fn residual(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 8);
    let y = stage.frozen(x, 8);
    let x = stage.add(x, y);
    let x = stage.relu(x);
    let x = stage.frozen(x, 8);
    stage.finish(x)
}

fn residual_relu(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 8);
    let x = stage.relu(x);
    let y = stage.frozen(x, 8);
    let x = stage.add(x, y);
    let x = stage.relu(x);
    stage.finish(x)
}

fn two_residuals(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let mut x = stage.frozen(stage.image(), 8);
    for _ in 0..2 {
        let y = stage.relu(x);
        x = stage.add(x, y);
    }
    let x = stage.relu(x);
    stage.finish(x)
}

fn long_skip(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let first = stage.trained(stage.image(), 8);
    let first = stage.relu(first);
    let x = stage.frozen(first, 8);
    let x = stage.relu(x);
    let x = stage.add(x, first);
    stage.finish(x)
}

fn concat(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 8);
    let a = stage.frozen(x, 4);
    let b = stage.frozen(x, 8);
    let x = stage.concat(&[a, b]);
    let x = stage.relu(x);
    stage.finish(x)
}

fn concat_of_three(name: &str) -> Program {
    let mut stage = Stage::images(name, 6);
    let a = stage.frozen(stage.image(), 4);
    let a = stage.relu(a);
    let b = stage.frozen(stage.image(), 8);
    let b = stage.relu(b);
    let c = stage.frozen(stage.image(), 4);
    let x = stage.concat(&[a, b, c]);
    let x = stage.norm(x);
    stage.finish(x)
}

fn dense_block(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 8);
    let y = stage.frozen(x, 4);
    let x = stage.concat(&[x, y]);
    let y = stage.relu(x);
    let y = stage.frozen(y, 4);
    stage.finish(y)
}

fn three_readers(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 8);
    let x = stage.relu(x);
    let a = stage.frozen(x, 8);
    let y = stage.add(x, a);
    let y = stage.add(y, x);
    stage.finish(y)
}

fn max_pools(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 16);
    let x = stage.max_pool(x);
    let x = stage.trained(x, 32);
    let x = stage.max_pool(x);
    stage.finish(x)
}

fn avg_pool(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 16);
    let x = stage.relu(x);
    let x = stage.avg_pool(x);
    let x = stage.trained(x, 16);
    stage.finish(x)
}

fn pyramid(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 16);
    let x = stage.max_pool(x);
    let x = stage.norm(x);
    let x = stage.max_pool(x);
    let x = stage.norm(x);
    stage.finish(x)
}

fn dropout(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 8);
    let x = stage.relu(x);
    let x = stage.dropout(x);
    let x = stage.trained(x, 8);
    stage.finish(x)
}

fn dropout_residual(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 8);
    let y = stage.norm(x);
    let y = stage.dropout(y);
    let x = stage.add(x, y);
    let x = stage.relu(x);
    stage.finish(x)
}

fn norm(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 8);
    let x = stage.norm(x);
    let x = stage.trained(x, 8);
    let x = stage.relu(x);
    stage.finish(x)
}

fn norms(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let mut x = stage.frozen(stage.image(), 8);
    for _ in 0..4 {
        x = stage.norm(x);
    }
    stage.finish(x)
}

fn pool_beside_conv(name: &str) -> Program {
    let mut stage = Stage::images(name, 4);
    let x = stage.trained(stage.image(), 12);
    let a = stage.max_pool(x);
    let b = stage.avg_pool(x);
    let x = stage.concat(&[a, b]);
    let x = stage.relu(x);
    stage.finish(x)
}

fn perceptron(name: &str) -> Program {
    let mut stage = Stage::rows(name, 16);
    let x = stage.trained(stage.image(), 32);
    let x = stage.relu(x);
    let x = stage.trained(x, 10);
    stage.classify(x)
}

fn perceptron_wide(name: &str) -> Program {
    let mut stage = Stage::rows(name, 16);
    let x = stage.frozen(stage.image(), 64);
    let x = stage.relu(x);
    let x = stage.dropout(x);
    let x = stage.trained(x, 24);
    stage.classify(x)
}

fn perceptron_frozen(name: &str) -> Program {
    let mut stage = Stage::rows(name, 16);
    let x = stage.frozen(stage.image(), 48);
    let x = stage.relu(x);
    let x = stage.frozen(x, 32);
    let x = stage.relu(x);
    let x = stage.frozen(x, 24);
    stage.classify(x)
}

fn autoencoder(name: &str) -> Program {
    let mut stage = Stage::rows(name, 64);
    let x = stage.trained(stage.image(), 32);
    let x = stage.relu(x);
    let x = stage.frozen(x, 8);
    let x = stage.relu(x);
    let x = stage.frozen(x, 48);
    stage.finish(x)
}
