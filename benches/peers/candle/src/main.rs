//! The case of `cpu_vgg11` in candle: VGG-11's convolutions on 32×32 images, batch 64, one linear layer, plain SGD.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Module, Optimizer, SGD, VarBuilder, VarMap, conv2d, linear, loss};
use std::time::Instant;

const PLAN: [usize; 13] = [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0];

struct Net {
    convs: Vec<Option<Conv2d>>,
    classifier: Linear,
}

impl Net {
    fn new(vb: VarBuilder) -> Result<Self> {
        let (mut convs, mut channels) = (Vec::new(), 3);
        for (i, &out) in PLAN.iter().enumerate() {
            if out == 0 {
                convs.push(None);
                continue;
            }
            let config = Conv2dConfig { padding: 1, ..Default::default() };
            convs.push(Some(conv2d(channels, out, 3, config, vb.pp(format!("conv{i}")))?));
            channels = out;
        }
        Ok(Net { convs, classifier: linear(512, 10, vb.pp("classifier"))? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for conv in &self.convs {
            x = match conv {
                Some(conv) => conv.forward(&x)?.relu()?,
                None => x.max_pool2d(2)?,
            };
        }
        self.classifier.forward(&x.flatten_from(1)?)
    }
}

fn main() -> Result<()> {
    let device = Device::Cpu;
    let vars = VarMap::new();
    let net = Net::new(VarBuilder::from_varmap(&vars, DType::F32, &device))?;
    let x = Tensor::randn(0f32, 1.0, (64, 3, 32, 32), &device)?;
    let y = Tensor::from_vec((0..64u32).map(|i| i % 10).collect::<Vec<_>>(), 64, &device)?;
    let mut sgd = SGD::new(vars.all_vars(), 0.01)?;
    let mut times = Vec::new();
    for step in 0..13 {
        let started = Instant::now();
        let loss = loss::cross_entropy(&net.forward(&x)?, &y)?;
        sgd.backward_step(&loss)?;
        if step >= 3 {
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{{\"program\": \"candle 0.11.1\", \"ms_median\": {:.1}, \"ms_min\": {:.1}, \"ms_p90\": {:.1}}}",
        times[times.len() / 2],
        times[0],
        times[times.len() * 9 / 10]
    );
    Ok(())
}
