//! A device's context, its streams and events.
//!
//! ```text
//!  compute   ── kernels ───────────●──────────▶   high priority
//!  offload   ── device to host ────┘  event       normal
//!  prefetch  ── host to device ───────────────▶   normal
//!  disk      ── host functions ───────────────▶   normal
//! ```
//!
//! Streams do not synchronise with the default stream, and events carry no time unless asked: nothing waits for
//! anything unless the schedule says so. Every object keeps its context alive.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute_enum as Attribute, CUevent, CUevent_flags_enum as EventFlags, CUgraph,
    CUgraphExec, CUstream, CUstream_flags_enum as StreamFlags,
};

use crate::CudaError;
use crate::driver::{Driver, HostFunction, driver};

/// The primary context of one device, current in the thread that opened it (see [`Context::bind`]).
#[derive(Debug)]
pub struct Context {
    /// Number of the device.
    pub ordinal: usize,
    /// The device's name.
    pub name: String,
    /// Compute capability, (9, 0) for an H200.
    pub capability: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of device memory.
    pub total_bytes: u64,
    /// Greatest distance in bytes between two rows of a 2-D copy.
    pub max_pitch: u64,
    /// The CUDA version that the driver supports, 13000 for 13.0.
    pub driver_version: usize,
    pub(crate) driver: &'static Driver,
    device: CUdevice,
    raw: CUcontext,
}

// SAFETY: the driver allows a context to be used from several threads; each binds it first.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the primary context of device `ordinal` and makes it current here.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        let driver = driver()?;
        let count = driver.device_count()?;
        if ordinal >= count {
            return Err(CudaError::NoSuchDevice { asked: ordinal, count });
        }
        let f = &driver.functions;
        let (mut device, mut raw): (CUdevice, CUcontext) = (0, std::ptr::null_mut());
        // SAFETY: the ordinal exists; both calls write one handle.
        unsafe {
            driver.check("cuDeviceGet", (f.device_get)(&mut device, ordinal as c_int))?;
            driver.check("cuDevicePrimaryCtxRetain", (f.context_retain)(&mut raw, device))?;
        }
        let context = Self::describe(driver, ordinal, device, raw)?;
        context.bind()?;
        Ok(Arc::new(context))
    }

    fn describe(driver: &'static Driver, ordinal: usize, device: CUdevice, raw: CUcontext) -> Result<Self, CudaError> {
        let f = &driver.functions;
        let mut name = [0 as c_char; 256];
        let mut total = 0usize;
        // SAFETY: the capacity given is the array's; the driver ends the text with zero.
        let name = unsafe {
            driver.check("cuDeviceGetName", (f.device_name)(name.as_mut_ptr(), 256, device))?;
            driver.check("cuDeviceTotalMem", (f.device_total)(&mut total, device))?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        let attribute = |which: Attribute| -> Result<u32, CudaError> {
            let mut value: c_int = 0;
            // SAFETY: writes one integer.
            let status = unsafe { (f.device_attribute)(&mut value, which as u32, device) };
            driver.check("cuDeviceGetAttribute", status).map(|()| value.max(0) as u32)
        };
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(Self {
            ordinal,
            name,
            capability: (major, minor),
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            total_bytes: total as u64,
            max_pitch: u64::from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH)?),
            driver_version: driver.version,
            driver,
            device,
            raw,
        })
    }

    /// Makes the context current in the calling thread. Every thread that uses the device calls this once.
    pub fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context was retained by `open` and lives as long as `self`.
        self.driver.check("cuCtxSetCurrent", unsafe { (self.driver.functions.context_set)(self.raw) })
    }

    /// (free, total) bytes of device memory now, as the driver sees it.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: writes two integers.
        let status = unsafe { (self.driver.functions.memory_info)(&mut free, &mut total) };
        self.driver.check("cuMemGetInfo", status)?;
        Ok((free as u64, total as u64))
    }

    /// Waits until the device has done everything asked of it; reports errors of earlier kernels.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: no arguments.
        self.driver.check("cuCtxSynchronize", unsafe { (self.driver.functions.context_synchronize)() })
    }

    /// The real architecture to compile for: `sm_90`.
    pub fn architecture(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: balances the retain in `open`.
        unsafe { (self.driver.functions.context_release)(self.device) };
    }
}

/// How urgently the device starts a stream's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// The greatest priority that the device has.
    High,
    /// The default.
    Normal,
}

/// A queue of work on the device. A clone is the same queue; it is destroyed with the last one.
#[derive(Debug, Clone)]
pub struct Stream {
    queue: Arc<Queue>,
    pub(crate) context: Arc<Context>,
}

#[derive(Debug)]
struct Queue {
    raw: CUstream,
    driver: &'static Driver,
}

// SAFETY: the driver allows a stream to be used from any thread in which its context is current.
unsafe impl Send for Queue {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the handle is ours; the driver finishes queued work first.
        unsafe { (self.driver.functions.stream_destroy)(self.raw) };
    }
}

impl Stream {
    /// A new stream that does not synchronise with the default one.
    pub fn new(context: &Arc<Context>, priority: Priority) -> Result<Self, CudaError> {
        let driver = context.driver;
        let (mut least, mut greatest): (c_int, c_int) = (0, 0);
        let mut raw: CUstream = std::ptr::null_mut();
        let flags = StreamFlags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: all pointers are to locals; the priority lies in the range just asked.
        unsafe {
            let status = (driver.functions.priority_range)(&mut least, &mut greatest);
            driver.check("cuCtxGetStreamPriorityRange", status)?;
            let level = if priority == Priority::High { greatest } else { least };
            driver.check("cuStreamCreateWithPriority", (driver.functions.stream_create)(&mut raw, flags, level))?;
        }
        Ok(Self { queue: Arc::new(Queue { raw, driver }), context: context.clone() })
    }

    /// The context that the stream belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUstream {
        self.queue.raw
    }

    /// Puts `event` behind everything queued so far.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        let driver = self.context.driver;
        // SAFETY: both handles live.
        driver.check("cuEventRecord", unsafe { (driver.functions.event_record)(event.raw, self.queue.raw) })
    }

    /// Lets everything queued from now on wait for `event`.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        let driver = self.context.driver;
        // SAFETY: both handles live.
        driver.check("cuStreamWaitEvent", unsafe { (driver.functions.stream_wait)(self.queue.raw, event.raw, 0) })
    }

    /// Queues a call of a function of the host, which the driver makes on a thread of its own.
    ///
    /// # Safety
    /// The function may be called with the argument once, at any time from now on, on any thread, and calls no driver.
    pub(crate) unsafe fn call(&self, function: HostFunction, argument: *mut c_void) -> Result<(), CudaError> {
        let driver = self.context.driver;
        // SAFETY: the handle lives; the caller answers for the rest.
        let status = unsafe { (driver.functions.host_function)(self.queue.raw, function, argument) };
        driver.check("cuLaunchHostFunc", status)
    }

    /// Blocks the caller until the stream has run dry; reports errors of its kernels.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let driver = self.context.driver;
        // SAFETY: the handle lives.
        driver.check("cuStreamSynchronize", unsafe { (driver.functions.stream_synchronize)(self.queue.raw) })
    }

    /// Whether everything queued so far has run, or failed.
    pub fn is_idle(&self) -> bool {
        const NOT_READY: u32 = 600;
        // SAFETY: the handle lives.
        let status = unsafe { (self.context.driver.functions.stream_query)(self.queue.raw) };
        status != NOT_READY
    }

    /// Records what `enqueue` puts on this stream, and on streams that fork from and join it, as one graph.
    ///
    /// Nothing may allocate or synchronise meanwhile. When `enqueue` fails, capture is ended and its error returned.
    pub fn capture(&self, enqueue: impl FnOnce() -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        let driver = self.context.driver;
        let thread_local = 1; // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        let mut graph: CUgraph = std::ptr::null_mut();
        let mut raw: CUgraphExec = std::ptr::null_mut();
        // SAFETY: the handle lives; capture is ended below whatever happens in between.
        driver
            .check("cuStreamBeginCapture", unsafe { (driver.functions.capture_begin)(self.queue.raw, thread_local) })?;
        let queued = enqueue();
        // SAFETY: writes one handle, null when the capture was invalidated.
        let ended =
            driver.check("cuStreamEndCapture", unsafe { (driver.functions.capture_end)(self.queue.raw, &mut graph) });
        if let Err(error) = queued.and(ended) {
            if !graph.is_null() {
                // SAFETY: what was recorded before the failure is of no use.
                unsafe { (driver.functions.graph_destroy)(graph) };
            }
            return Err(error);
        }
        // SAFETY: the graph is valid and no longer needed once instantiated.
        let made = unsafe {
            let made = (driver.functions.graph_instantiate)(&mut raw, graph, 0);
            (driver.functions.graph_destroy)(graph);
            made
        };
        driver.check("cuGraphInstantiateWithFlags", made)?;
        // SAFETY: both handles live; uploading now keeps the first launch as fast as the later ones.
        driver.check("cuGraphUpload", unsafe { (driver.functions.graph_upload)(raw, self.queue.raw) })?;
        Ok(Graph { raw, context: self.context.clone() })
    }
}

/// The streams of a schedule.
#[derive(Debug)]
pub struct Streams {
    /// Kernels.
    pub compute: Stream,
    /// Device to host.
    pub offload: Stream,
    /// Host to device.
    pub prefetch: Stream,
    /// Host memory to and from a file, by functions of the host.
    pub disk: Stream,
}

impl Streams {
    /// Makes all four; compute goes first where the device has a choice.
    pub fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        Ok(Self {
            compute: Stream::new(context, Priority::High)?,
            offload: Stream::new(context, Priority::Normal)?,
            prefetch: Stream::new(context, Priority::Normal)?,
            disk: Stream::new(context, Priority::Normal)?,
        })
    }

    /// Waits for all four.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.compute.synchronize()?;
        self.offload.synchronize()?;
        self.prefetch.synchronize()?;
        self.disk.synchronize()
    }
}

/// Whether an event carries a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// It can be compared with another one.
    On,
    /// It only orders; cheaper.
    Off,
}

/// A mark in a stream. Made before the first step and recorded again in every iteration.
#[derive(Debug)]
pub struct Event {
    raw: CUevent,
    context: Arc<Context>,
}

// SAFETY: as for streams.
unsafe impl Send for Event {}
// SAFETY: as for streams.
unsafe impl Sync for Event {}

impl Event {
    /// A new event.
    pub fn new(context: &Arc<Context>, timing: Timing) -> Result<Self, CudaError> {
        let flags = match timing {
            Timing::On => EventFlags::CU_EVENT_DEFAULT,
            Timing::Off => EventFlags::CU_EVENT_DISABLE_TIMING,
        };
        let mut raw: CUevent = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let status = unsafe { (context.driver.functions.event_create)(&mut raw, flags as u32) };
        context.driver.check("cuEventCreate", status)?;
        Ok(Self { raw, context: context.clone() })
    }

    /// `count` events at once.
    pub fn many(context: &Arc<Context>, timing: Timing, count: usize) -> Result<Vec<Self>, CudaError> {
        (0..count).map(|_| Self::new(context, timing)).collect()
    }

    /// Blocks the caller until the event has happened.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let driver = self.context.driver;
        // SAFETY: the handle lives.
        driver.check("cuEventSynchronize", unsafe { (driver.functions.event_synchronize)(self.raw) })
    }

    /// Milliseconds from this event to `later`; both must be timing events and have happened.
    pub fn elapsed_ms(&self, later: &Event) -> Result<f64, CudaError> {
        let driver = self.context.driver;
        let mut ms = 0f32;
        // SAFETY: writes one number.
        let status = unsafe { (driver.functions.event_elapsed)(&mut ms, self.raw, later.raw) };
        driver.check("cuEventElapsedTime", status)?;
        Ok(f64::from(ms))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is ours.
        unsafe { (self.context.driver.functions.event_destroy)(self.raw) };
    }
}

/// Captured work, launched as a whole.
#[derive(Debug)]
pub struct Graph {
    raw: CUgraphExec,
    context: Arc<Context>,
}

// SAFETY: as for streams; launches take the stream's lock.
unsafe impl Send for Graph {}

impl Graph {
    /// Queues one run on `stream`.
    pub fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        let driver = self.context.driver;
        // SAFETY: both handles live.
        driver.check("cuGraphLaunch", unsafe { (driver.functions.graph_launch)(self.raw, stream.raw()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is ours.
        unsafe { (self.context.driver.functions.graph_exec_destroy)(self.raw) };
    }
}
