//! Networks on the CPU device: one run under one policy, and what must not depend on it.

use std::path::Path;
use vdnn_datasets::{Dataset, Split, fashion_mnist_sample};
use vdnn_graph::passes::{Passes, SplitBatch};
use vdnn_layers::{Mode, Net};
use vdnn_memory::{Budgets, Options, State, policies};
use vdnn_models::Options as ModelOptions;
use vdnn_runtime::{CpuDevice, Device};
use vdnn_schedule::{Action, Direction, Schedule, Space};
use vdnn_sim::{DiskRates, Links};
use vdnn_tensor::DType;
use vdnn_train::{BuildError, Encodings, Feed, Optimization, Recipe, Settings, TrainError, Trainer};

/// A network of a name.
pub type BuildNet = fn(&str, &ModelOptions) -> Result<Net, BuildError>;

pub struct Setup<'a> {
    pub model: &'a str,
    pub policy: &'a str,
    pub options: Options,
    pub budget: Option<u64>,
    pub host_budget: Option<u64>,
    /// Disk budget, and the folder of the file.
    pub disk: Option<(u64, &'a Path)>,
    pub algos_from: Option<Schedule>,
    pub encodings: Encodings,
    pub threads: usize,
    pub steps: u64,
    /// Small: kernels without workspace are plain loops.
    pub batch: u64,
    pub dtype: DType,
    pub passes: Passes,
    pub split: Option<SplitBatch>,
    pub network: BuildNet,
    pub learning_rate: f64,
    pub staging: bool,
    /// Further sizes of training and of evaluation batches.
    pub partial: Vec<u64>,
    pub eval: Vec<u64>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup {
            model: "vgg-small",
            policy: "none",
            options: Options {
                min_offload: 0,
                memory_optimal_workspace: 0,
                state: State::Device,
                ..Options::default()
            },
            budget: None,
            host_budget: None,
            disk: None,
            algos_from: None,
            encodings: Encodings::Auto,
            threads: 2,
            steps: 20,
            batch: 4,
            dtype: DType::F32,
            passes: Passes::NONE,
            split: None,
            network: |model, options| vdnn_models::build(model, options).map_err(Into::into),
            learning_rate: 0.01,
            staging: false,
            partial: vec![],
            eval: vec![],
        }
    }
}

/// What must not depend on the policy, and what does.
pub struct Outcome {
    pub losses: Vec<u64>,
    pub weights: String,
    pub schedule: Schedule,
    pub planned: u64,
    pub measured: u64,
    pub host_planned: u64,
    pub host_measured: u64,
    pub disk_planned: u64,
    /// Sizes of files without a name in the folder for what rests on disk.
    pub files: Vec<u64>,
    /// Gradient rules that read a mask or indices.
    pub encoded: usize,
}

impl Outcome {
    pub fn bits(&self) -> (&[u64], &str) {
        (&self.losses, &self.weights)
    }

    pub fn offloads(&self) -> bool {
        self.schedule.transfer_bytes(Direction::Offload) > 0
    }

    /// Launches of later runs in one iteration.
    pub fn launches_again(&self) -> usize {
        let later = |action: &Action| matches!(action, Action::Launch { run, .. } if *run > 0);
        self.schedule.commands.iter().filter(|command| later(&command.action)).count()
    }

    pub fn losses(&self) -> Vec<f64> {
        self.losses.iter().map(|&bits| f64::from_bits(bits)).collect()
    }
}

pub fn trainer(setup: &Setup<'_>) -> Result<Trainer, TrainError> {
    let (model, dtype, passes, network) = (setup.model.to_string(), setup.dtype, setup.passes, setup.network);
    let split = setup.split.clone();
    let build = move |batch_size: u64, mode: Mode| {
        let options = ModelOptions {
            batch_size,
            mode,
            image_size: Some(28),
            channels: Some(1),
            classes: Some(10),
            dropout: Some(0.3),
            seed: 7,
            dtype,
            passes,
            split_batch: split.clone(),
            ..ModelOptions::default()
        };
        network(&model, &options)
    };
    let disk = DiskRates { write: 1e8, read: 1e8, latency: 0.0 };
    let settings = Settings {
        policy: policies::find(setup.policy).unwrap(),
        options: setup.options,
        budgets: Budgets { device: setup.budget, host: setup.host_budget, disk: setup.disk.map(|(bytes, _)| bytes) },
        links: Links { disk: Some(disk), ..Links::new(2e8, 2e8, 2e8) },
        algos_from: setup.algos_from.clone(),
        encodings: setup.encodings,
    };
    let recipe = Recipe {
        batch_size: setup.batch,
        partial_batches: setup.partial.clone(),
        eval_batches: setup.eval.clone(),
        optimization: Optimization::sgd(0.9, 5e-4),
        settings,
        staging: setup.staging,
        deterministic: true,
        seed: 7,
    };
    let mut device = CpuDevice::with_threads(setup.threads)?;
    if let Some((_, folder)) = setup.disk {
        device.set_disk_folder(folder);
    }
    Trainer::new(&build, Box::new(device), &recipe)
}

/// Sizes of files of this process that had their names in a folder and have none any more.
pub fn nameless_files(folder: &Path) -> Vec<u64> {
    let ours = |path: &Path| path.starts_with(folder) && path.to_string_lossy().ends_with(" (deleted)");
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let nameless = open.filter(|fd| std::fs::read_link(fd).is_ok_and(|path| ours(&path)));
    nameless.filter_map(|fd| std::fs::metadata(fd).ok()).map(|file| file.len()).collect()
}

pub fn feed_pixels(data: &Dataset, step: u64, batch: u64) -> (Vec<f32>, Vec<i32>) {
    let first = (step * batch) as usize;
    let range = first..first + batch as usize;
    let pixels = data.images()[range.start * 784..range.end * 784].iter();
    (pixels.map(|&p| (f32::from(p) / 255.0 - 0.286) / 0.353).collect(), labels(data, range))
}

fn labels(data: &Dataset, range: std::ops::Range<usize>) -> Vec<i32> {
    data.labels()[range].to_vec()
}

pub fn run(setup: &Setup<'_>) -> Outcome {
    let data = fashion_mnist_sample().unwrap().train;
    assert_eq!(data.split(), Split::Train);
    let mut trainer = trainer(setup).unwrap();
    let mut losses = Vec::new();
    for step in 0..setup.steps {
        let (images, labels) = feed_pixels(&data, step, setup.batch);
        let result = trainer.step(Feed::new(&images, &labels), setup.learning_rate).unwrap();
        losses.push(result.loss.to_bits());
    }
    Outcome {
        losses,
        weights: trainer.weights_sha256().unwrap(),
        planned: trainer.peak_bytes(Space::Device),
        measured: trainer.measured_peak().unwrap(),
        host_planned: trainer.peak_bytes(Space::Host),
        host_measured: trainer.measured_host_peak().unwrap(),
        disk_planned: trainer.peak_bytes(Space::Disk),
        files: setup.disk.map(|(_, folder)| nameless_files(folder)).unwrap_or_default(),
        schedule: (*trainer.planned().schedule).clone(),
        encoded: trainer.planned().encoded_nodes(),
    }
}
