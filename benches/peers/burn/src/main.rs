//! The case of `cpu_vgg11` in burn: VGG-11's convolutions on 32×32 images, batch 64, one linear layer, SGD with
//! momentum 0.9 and weight decay, two threads. Arguments: the backend, `flex` (if absent; the faster one) or `ndarray`
//! where the feature of that name is on; the number of timed steps (10 if absent). Losses go to stderr.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{GradientsParams, SgdConfig, decay::WeightDecayConfig, momentum::MomentumConfig};
use burn::tensor::{Device, Distribution, Int, Tensor, activation::relu};
use std::error::Error;
use std::time::Instant;

const PLAN: [usize; 13] = [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0];

#[derive(Module, Debug)]
struct Net {
    convs: Vec<Option<Conv2d>>,
    pool: MaxPool2d,
    classifier: Linear,
}

impl Net {
    fn new(device: &Device) -> Self {
        let (mut convs, mut channels) = (Vec::new(), 3);
        for out in PLAN {
            if out == 0 {
                convs.push(None);
                continue;
            }
            let padding = PaddingConfig2d::Explicit(1, 1, 1, 1);
            convs.push(Some(Conv2dConfig::new([channels, out], [3, 3]).with_padding(padding).init(device)));
            channels = out;
        }
        let pool = MaxPool2dConfig::new([2, 2]).init();
        Net { convs, pool, classifier: LinearConfig::new(512, 10).init(device) }
    }

    fn loss(&self, x: &Tensor<4>, y: &Tensor<1, Int>, criterion: &CrossEntropyLoss) -> Tensor<1> {
        let mut x = x.clone();
        for conv in &self.convs {
            x = match conv {
                Some(conv) => relu(conv.forward(x)),
                None => self.pool.forward(x),
            };
        }
        criterion.forward(self.classifier.forward(x.flatten(1, 3)), y.clone())
    }
}

#[allow(deprecated)] // burn names flex as the successor of ndarray
fn device(backend: &str) -> Result<Device, Box<dyn Error>> {
    match backend {
        "flex" => Ok(Device::flex()),
        #[cfg(feature = "ndarray")]
        "ndarray" => Ok(Device::ndarray()),
        _ => Err(format!("no backend {backend}; try flex, or ndarray with the feature of that name").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let backend = std::env::args().nth(1).unwrap_or("flex".into());
    let steps = std::env::args().nth(2).map_or(Ok(10), |steps| steps.parse::<usize>())?.max(1);
    let warm_up = steps.min(3);
    rayon::ThreadPoolBuilder::new().num_threads(2).build_global()?;
    let device = device(&backend)?.autodiff();
    device.seed(0);
    let mut net = Net::new(&device);
    let criterion = CrossEntropyLossConfig::new().init(&device);
    let x = Tensor::<4>::random([64, 3, 32, 32], Distribution::Normal(0.0, 1.0), &device);
    let y = Tensor::<1, Int>::from_data(std::array::from_fn::<i32, 64, _>(|i| i as i32 % 10), &device);
    let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
    let decay = WeightDecayConfig::new(5e-4);
    let mut sgd = SgdConfig::new().with_momentum(Some(momentum)).with_weight_decay(Some(decay)).init();
    let (mut times, mut losses) = (Vec::new(), Vec::new());
    for step in 0..warm_up + steps {
        let started = Instant::now();
        let loss = net.loss(&x, &y, &criterion);
        let grads = GradientsParams::from_grads(loss.backward(), &net);
        net = sgd.step(0.01, net, grads);
        losses.push(loss.into_scalar::<f32>());
        device.sync()?;
        if step >= warm_up {
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    eprintln!("losses: {losses:?}");
    println!(
        "{{\"program\": \"burn 0.22.1 {backend}\", \"ms_median\": {:.1}, \"ms_min\": {:.1}, \"ms_p90\": {:.1}}}",
        times[times.len() / 2],
        times[0],
        times[times.len() * 9 / 10]
    );
    Ok(())
}
