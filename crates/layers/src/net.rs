//! A network under construction: its graph, its inputs, and how its parameters start.

use crate::{Init, Layer, LayerError, SoftmaxCrossEntropy, accuracy};
use std::collections::HashMap;
use vdnn_graph::op::Normalise;
use vdnn_graph::passes::{Passes, SplitBatch};
use vdnn_graph::{Graph, LayerId, Op, Precision, Role, ValueId};
use vdnn_tensor::{Bytes, DType, HostTensor, TensorType};

/// All values of a network together may take this much. It keeps every later sum of sizes within 64 bits.
const LIMIT: Bytes = 1 << 62;

/// Whether a network is built for training or for evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Batch statistics, dropout.
    #[default]
    Train,
    /// Running statistics, no dropout.
    Eval,
}

/// What all layers of a network share.
#[derive(Clone, Debug, PartialEq)]
pub struct NetOptions {
    /// Samples in a batch, N.
    pub batch_size: u64,
    /// Channels, height and width of the image.
    pub image: [u64; 3],
    /// Training or evaluation.
    pub mode: Mode,
    /// Seed of initial values and dropout masks.
    pub seed: u64,
    /// Element type of images that are no bytes, feature maps and parameters, as layers push them.
    pub dtype: DType,
    /// Arithmetic of f32 matrix products.
    pub precision: Precision,
    /// Images come as bytes, and the network begins by making numbers of them, by these means and deviations (in the network's
    /// own dtype, whatever is set here). `None` for images that come as numbers.
    pub bytes: Option<Normalise>,
    /// What becomes of the finished graph before it is differentiated or run: see [`Net::lower`].
    pub passes: Passes,
    /// Splits the batch where samples are treated independently, after the passes; how far into the network follows from the
    /// whole iteration, so that it is done where that is made (`vdnn_train::program`).
    pub split_batch: Option<SplitBatch>,
}

impl Default for NetOptions {
    fn default() -> Self {
        NetOptions {
            batch_size: 1,
            image: [3, 224, 224],
            mode: Mode::Train,
            seed: 0,
            dtype: DType::F32,
            precision: Precision::F32,
            bytes: None,
            passes: Passes::NONE,
            split_batch: None,
        }
    }
}

/// A graph with the inputs every network has: `image` `[N, C, H, W]`, `label` `[N]`, `iteration` and `learning_rate` `[1]`.
/// Where `image` is of bytes, layers read `image.normalised`.
#[derive(Clone, Debug)]
pub struct Net {
    graph: Graph,
    options: NetOptions,
    image: ValueId,
    label: ValueId,
    iteration: ValueId,
    logits: Option<ValueId>,
    loss: Option<ValueId>,
    accuracy: Option<ValueId>,
    initial: Vec<(String, Init)>,
    parameters: HashMap<String, ValueId>,
    /// Layers being reused: nodes under the first prefix take the parameters under the second.
    shared: Vec<(String, String)>,
    total: Bytes,
    lowered: bool,
}

impl Net {
    /// An empty network with its inputs.
    ///
    /// # Errors
    /// [`LayerError::TooLarge`] when a batch of images exceeds 64-bit sizes, [`LayerError::Setting`] for an integer dtype.
    pub fn new(name: &str, options: &NetOptions) -> Result<Self, LayerError> {
        if !options.dtype.is_float() {
            let found = options.dtype.to_string();
            return Err(LayerError::Setting { layer: "image".to_string(), expected: "a floating-point type", found });
        }
        let mut graph = Graph::new(name);
        graph.precision = options.precision;
        let ([c, h, w], n) = (options.image, options.batch_size);
        let stored = if options.bytes.is_some() { DType::U8 } else { options.dtype };
        let image = graph.input("image", TensorType::new([n, c, h, w], stored))?;
        let label = graph.input("label", TensorType::new([n], DType::I32))?;
        let iteration = graph.input("iteration", TensorType::new([1], DType::U64))?;
        graph.input("learning_rate", TensorType::new([1], options.dtype))?;
        let mut net = Net {
            graph,
            options: options.clone(),
            image,
            label,
            iteration,
            logits: None,
            loss: None,
            accuracy: None,
            initial: Vec::new(),
            parameters: HashMap::new(),
            shared: Vec::new(),
            total: 0,
            lowered: false,
        };
        net.count("image", image)?;
        net.count("label", label)?;
        if let Some(op) = &options.bytes {
            let op = Op::Normalise(Normalise { dtype: options.dtype, ..op.clone() });
            net.image = net.single("image.normalised", op, &[image])?;
        }
        Ok(net)
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The network after the passes that its options ask for; as it is where they ask for none or have run. Parameters,
    /// states, loss and inputs are found as before; ids that were taken from the network before are of the graph before.
    ///
    /// ```
    /// use vdnn_graph::passes::Passes;
    /// use vdnn_layers::{Conv2d, Flatten, Layer, Linear, Net, NetOptions, Sequential};
    /// use vdnn_tensor::DType;
    /// let passes = Passes { fuse: true, storage: Some(DType::BF16), ..Passes::NONE };
    /// let mut net = Net::new("tiny", &NetOptions { image: [3, 8, 8], passes, ..NetOptions::default() })?;
    /// let body = Sequential::new()
    ///     .then("conv", Conv2d::new(3, 16, 3).padding(1))
    ///     .then("flatten", Flatten)
    ///     .then("fc", Linear::new(16 * 8 * 8, 10));
    /// let image = net.image();
    /// let logits = body.push(&mut net, "", image)?;
    /// net.classify(logits, 0.0)?;
    /// let net = net.lower()?;
    /// let ty = |name| net.ty(net.graph().find_value(name).unwrap()).to_string();
    /// assert_eq!(ty("conv.weight"), "f32[16, 3, 3, 3]");
    /// assert_eq!(ty("conv.weight.unfolded"), "bf16[16, 9, 1, 3] nhwc +7c");
    /// assert_eq!(ty("conv"), "bf16[1, 16, 8, 8] nhwc");
    /// # Ok::<(), vdnn_layers::LayerError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayerError::Graph`] for a graph that a pass cannot take: half precision starts from f32, not f64.
    pub fn lower(mut self) -> Result<Self, LayerError> {
        if self.lowered || self.options.passes.is_none() {
            return Ok(self);
        }
        let rewritten = self.options.passes.apply(&self.graph)?;
        let now =
            |before: ValueId| rewritten.value(before).expect("passes keep inputs, parameters and what is read back");
        let (image, label, iteration) = (now(self.image), now(self.label), now(self.iteration));
        let maybe = |before: Option<ValueId>| before.and_then(|before| rewritten.value(before));
        let (logits, loss, accuracy) = (maybe(self.logits), maybe(self.loss), maybe(self.accuracy));
        self.parameters.values_mut().for_each(|id| *id = now(*id));
        Ok(Net { graph: rewritten.graph, image, label, iteration, logits, loss, accuracy, lowered: true, ..self })
    }

    /// The network with [`Passes::apart`](vdnn_graph::passes::Passes::apart), where its passes have not run yet.
    pub fn with_norms_apart(mut self) -> Self {
        self.options.passes.apart = true;
        self
    }

    /// The finished graph.
    pub fn into_graph(self) -> Graph {
        self.graph
    }

    /// What all layers share.
    pub fn options(&self) -> &NetOptions {
        &self.options
    }

    /// Training or evaluation.
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// The batch of images, `[N, C, H, W]`, as numbers.
    pub fn image(&self) -> ValueId {
        self.image
    }

    /// The batch of labels, `[N]`.
    pub fn label(&self) -> ValueId {
        self.label
    }

    /// The iteration counter, `[1]`, starting at 0.
    pub fn iteration(&self) -> ValueId {
        self.iteration
    }

    /// What [`Net::classify`] was given, `[N, classes]`.
    pub fn logits(&self) -> Option<ValueId> {
        self.logits
    }

    /// The mean loss, once the network classifies.
    pub fn loss(&self) -> Option<ValueId> {
        self.loss
    }

    /// The number of right answers, once the network classifies.
    pub fn accuracy(&self) -> Option<ValueId> {
        self.accuracy
    }

    /// How each parameter and state starts, in the order of their creation.
    pub fn initial(&self) -> &[(String, Init)] {
        &self.initial
    }

    /// The initial values of all parameters and states, by name, under the network's seed.
    pub fn initial_values(&self) -> impl Iterator<Item = (&str, HostTensor)> {
        self.initial.iter().map(|(name, init)| {
            let ty = &self.graph.value(self.parameters[name]).ty;
            (name.as_str(), init.fill(self.options.seed, name, ty))
        })
    }

    /// Number of trained numbers.
    pub fn n_parameters(&self) -> u64 {
        let initial = self.graph.persistents().iter().map(|persistent| self.graph.value(persistent.initial));
        initial.filter(|value| value.role == Role::Parameter).map(|value| value.ty.shape.elements()).sum()
    }

    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.graph.value(id).ty
    }

    /// Channels of an image or features `[N, C, …]`; 1 when there is no such dimension.
    pub fn channels(&self, id: ValueId) -> u64 {
        self.ty(id).shape.dim(1)
    }

    /// Starts a layer of the graph.
    pub fn begin_layer(&mut self, name: &str) -> LayerId {
        self.graph.begin_layer(name)
    }

    /// Pushes a node into the current layer.
    ///
    /// # Errors
    /// [`LayerError::Graph`] when the shape rule refuses, [`LayerError::TooLarge`] when sizes overflow.
    pub fn node(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>, LayerError> {
        let outputs = self.graph.push(name, op, inputs)?;
        for &output in &outputs {
            self.count(name, output)?;
        }
        Ok(outputs)
    }

    /// Pushes a layer of one node with one output.
    ///
    /// # Errors
    /// As [`Net::node`].
    pub fn single(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId, LayerError> {
        self.begin_layer(name);
        Ok(self.node(name, op, inputs)?[0])
    }

    /// A trained weight `layer.suffix`; the layer's first use's when the layer is reused.
    ///
    /// # Errors
    /// [`LayerError`] for a repeated name, a shared parameter of another type, or sizes that overflow.
    pub fn parameter(&mut self, layer: &str, suffix: &str, shape: &[u64], init: Init) -> Result<ValueId, LayerError> {
        self.persistent(layer, suffix, shape, init, Role::Parameter)
    }

    /// A persistent value that is not trained. Read it through [`Graph::latest`], since a layer may run twice.
    ///
    /// # Errors
    /// As [`Net::parameter`].
    pub fn state(&mut self, layer: &str, suffix: &str, shape: &[u64], init: Init) -> Result<ValueId, LayerError> {
        self.persistent(layer, suffix, shape, init, Role::State)
    }

    fn persistent(
        &mut self,
        layer: &str,
        suffix: &str,
        shape: &[u64],
        init: Init,
        role: Role,
    ) -> Result<ValueId, LayerError> {
        let owner = self.parameter_owner(layer);
        let name = format!("{}.{suffix}", owner.as_deref().unwrap_or(layer));
        let ty = TensorType::new(shape, self.options.dtype);
        if owner.is_some()
            && let Some(&id) = self.parameters.get(&name)
        {
            let expected = self.ty(id).clone();
            return if expected == ty { Ok(id) } else { Err(LayerError::SharedType { name, expected, found: ty }) };
        }
        let id = match role {
            Role::Parameter => self.graph.parameter(&name, ty)?,
            _ => self.graph.state(&name, ty)?,
        };
        self.count(layer, id)?;
        self.initial.push((name.clone(), init));
        self.parameters.insert(name, id);
        Ok(id)
    }

    /// The name under which a reused layer first was pushed.
    fn parameter_owner(&self, layer: &str) -> Option<String> {
        self.shared.iter().rev().find_map(|(name, of)| {
            let rest = layer.strip_prefix(name.as_str())?;
            (rest.is_empty() || rest.starts_with('.')).then(|| format!("{of}{rest}"))
        })
    }

    /// Runs `push` with parameters of layers under `name` taken from those under `of`.
    pub(crate) fn sharing<T>(&mut self, name: &str, of: &str, push: impl FnOnce(&mut Self) -> T) -> T {
        self.shared.push((name.to_string(), of.to_string()));
        let result = push(self);
        self.shared.pop();
        result
    }

    /// Ends the network: loss and number of right answers for logits `[N, classes]` and the batch's labels.
    ///
    /// # Errors
    /// [`LayerError::Graph`] when `logits` is no matrix or the batch is empty.
    pub fn classify(&mut self, logits: ValueId, label_smoothing: f64) -> Result<(), LayerError> {
        let loss = SoftmaxCrossEntropy { label_smoothing, ..SoftmaxCrossEntropy::default() };
        self.logits = Some(logits);
        self.loss = Some(loss.push(self, "loss", logits)?);
        self.accuracy = Some(accuracy(self, "accuracy", logits)?);
        Ok(())
    }

    fn count(&mut self, layer: &str, id: ValueId) -> Result<(), LayerError> {
        self.total = self.total.saturating_add(self.ty(id).bytes());
        if self.total > LIMIT {
            return Err(LayerError::TooLarge { layer: layer.to_string(), limit: LIMIT });
        }
        Ok(())
    }
}
