//! The checked level: handles and backend descriptors whose calls return errors with cuDNN's own words.

use core::ffi::{CStr, c_void};

use vdnn_cudnn_sys::Cudnn;
use vdnn_cudnn_sys::sys::{
    cudnnBackendAttributeName_t as Attribute, cudnnBackendAttributeType_t as Element,
    cudnnBackendDescriptor_t as RawDescriptor, cudnnBackendDescriptorType_t as Kind, cudnnHandle_t,
};

use crate::CudaError;
use crate::context::Stream;

/// Turns a status into a result with the text of the last error.
pub(crate) fn check(cudnn: &Cudnn, call: impl FnOnce() -> String, status: u32) -> Result<(), CudaError> {
    if status == 0 {
        return Ok(());
    }
    let f = &cudnn.functions;
    let mut text = [0u8; 4096];
    // SAFETY: the library writes a zero-ended text of at most the given size, and returns a constant name.
    let (name, text) = unsafe {
        (f.get_last_error_string)(text.as_mut_ptr().cast(), text.len());
        let name = CStr::from_ptr((f.get_error_string)(status)).to_string_lossy().into_owned();
        (name, CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().trim().to_string())
    };
    Err(CudaError::Cudnn { call: call(), status: name, text })
}

/// cuDNN on one stream. Plans run where their handle's stream runs.
#[derive(Debug)]
pub struct Handle {
    raw: cudnnHandle_t,
    pub(crate) cudnn: &'static Cudnn,
    stream: Stream,
}

// SAFETY: cuDNN allows a handle to move between threads, as long as one at a time uses it.
unsafe impl Send for Handle {}

impl Handle {
    /// Makes a handle in the current context and binds it to `stream`.
    pub fn new(cudnn: &'static Cudnn, stream: &Stream) -> Result<Self, CudaError> {
        let mut raw: cudnnHandle_t = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check(cudnn, || "cudnnCreate".into(), unsafe { (cudnn.functions.create)(&mut raw) })?;
        let handle = Self { raw, cudnn, stream: stream.clone() };
        // SAFETY: both handles live; the stream is kept alive by the handle.
        let status = unsafe { (cudnn.functions.set_stream)(raw, stream.raw().cast()) };
        check(cudnn, || "cudnnSetStream".into(), status)?;
        Ok(handle)
    }

    /// The stream on which plans run.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn raw(&self) -> cudnnHandle_t {
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.stream.context.bind().is_ok() {
            // SAFETY: the handle is ours.
            unsafe { (self.cudnn.functions.destroy)(self.raw) };
        }
    }
}

/// A device described by cuDNN's JSON text, so that plans can be made and sized where that device is not.
#[derive(Debug)]
pub struct DeviceProperties {
    descriptor: Descriptor,
}

impl DeviceProperties {
    /// Reads the text, whose schema belongs to the cuDNN version.
    pub fn from_json(cudnn: &'static Cudnn, json: &str) -> Result<Self, CudaError> {
        let bytes: Vec<u8> = json.trim_end().bytes().chain([0]).collect();
        let descriptor = Descriptor::new(cudnn, Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?
            .set(Attribute::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, Element::CUDNN_TYPE_CHAR, &bytes)?
            .finalize()?;
        Ok(Self { descriptor })
    }
}

/// For which device plans are made.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// The device of a handle: plans can run.
    Device(&'a Handle),
    /// A described device: plans can be listed and sized.
    Described(&'a DeviceProperties),
}

impl Target<'_> {
    pub(super) fn cudnn(&self) -> &'static Cudnn {
        match self {
            Self::Device(handle) => handle.cudnn,
            Self::Described(properties) => properties.descriptor.cudnn,
        }
    }

    /// Names the device to `descriptor` by whichever of the two attributes it takes; `None` where it takes none.
    pub(super) fn name_to(
        &self,
        descriptor: Descriptor,
        by_handle: Option<Attribute>,
        by_properties: Option<Attribute>,
    ) -> Result<Descriptor, CudaError> {
        match (self, by_handle, by_properties) {
            (Self::Device(handle), Some(attribute), _) => {
                descriptor.set(attribute, Element::CUDNN_TYPE_HANDLE, &[handle.raw()])
            }
            (Self::Described(properties), _, Some(attribute)) => {
                descriptor.descriptors(attribute, &[&properties.descriptor])
            }
            _ => Ok(descriptor),
        }
    }
}

/// One backend descriptor, freed when dropped. Setters take and return it, so that it reads as one expression.
#[derive(Debug)]
pub struct Descriptor {
    raw: RawDescriptor,
    cudnn: &'static Cudnn,
}

// SAFETY: cuDNN ties no descriptor to a thread; finalized ones are only read.
unsafe impl Send for Descriptor {}
// SAFETY: shared references reach calls that only read.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    /// An empty descriptor of a kind.
    pub fn new(cudnn: &'static Cudnn, kind: Kind) -> Result<Self, CudaError> {
        let mut raw: RawDescriptor = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let status = unsafe { (cudnn.functions.backend_create)(kind as u32, &mut raw) };
        check(cudnn, || format!("cudnnBackendCreateDescriptor({kind:?})"), status)?;
        Ok(Self { raw, cudnn })
    }

    /// Sets an attribute. `T` must be the C type of `element`; the wrappers below see to it.
    pub(super) fn set<T>(self, attribute: Attribute, element: Element, values: &[T]) -> Result<Self, CudaError> {
        let (count, data) = (values.len() as i64, values.as_ptr().cast::<c_void>());
        // SAFETY: `data` holds `count` elements; the library copies them.
        let status =
            unsafe { (self.cudnn.functions.backend_set)(self.raw, attribute as u32, element as u32, count, data) };
        check(self.cudnn, || format!("set {attribute:?}"), status)?;
        Ok(self)
    }

    /// Sets integers.
    pub fn int64(self, attribute: Attribute, values: &[i64]) -> Result<Self, CudaError> {
        self.set(attribute, Element::CUDNN_TYPE_INT64, values)
    }

    /// Sets a number.
    pub fn float(self, attribute: Attribute, value: f32) -> Result<Self, CudaError> {
        self.set(attribute, Element::CUDNN_TYPE_FLOAT, &[value])
    }

    /// Sets other descriptors, which must be finalized.
    pub fn descriptors(self, attribute: Attribute, others: &[&Descriptor]) -> Result<Self, CudaError> {
        let raw: Vec<RawDescriptor> = others.iter().map(|d| d.raw).collect();
        self.set(attribute, Element::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw)
    }

    /// Checks the whole and makes it usable.
    pub fn finalize(self) -> Result<Self, CudaError> {
        // SAFETY: the descriptor lives.
        let status = unsafe { (self.cudnn.functions.backend_finalize)(self.raw) };
        check(self.cudnn, || "cudnnBackendFinalize".into(), status)?;
        Ok(self)
    }

    /// One integer.
    pub fn get_int64(&self, attribute: Attribute) -> Result<i64, CudaError> {
        let mut value = [0i64];
        self.get(attribute, Element::CUDNN_TYPE_INT64, &mut value)?;
        Ok(value[0])
    }

    /// Up to `capacity` enumerators, as numbers, because the library may know more of them than the binding.
    pub(super) fn get_numbers(
        &self,
        attribute: Attribute,
        element: Element,
        capacity: usize,
    ) -> Result<Vec<u32>, CudaError> {
        let mut values = vec![0u32; capacity];
        let count = self.get(attribute, element, &mut values)?;
        values.truncate(count);
        Ok(values)
    }

    /// How many elements an attribute has; 0 when it has none or cannot be asked.
    pub(super) fn count(&self, attribute: Attribute, element: Element) -> usize {
        self.get::<i64>(attribute, element, &mut []).unwrap_or(0)
    }

    /// Up to `capacity` descriptors of a kind.
    pub fn get_descriptors(
        &self,
        attribute: Attribute,
        kind: Kind,
        capacity: usize,
    ) -> Result<Vec<Descriptor>, CudaError> {
        let mut made: Vec<Descriptor> =
            (0..capacity).map(|_| Descriptor::new(self.cudnn, kind)).collect::<Result<_, _>>()?;
        // The library fills the descriptors that the array points to; it does not replace the pointers.
        let mut raw: Vec<RawDescriptor> = made.iter().map(|d| d.raw).collect();
        let count = self.get(attribute, Element::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut raw)?;
        made.truncate(count);
        Ok(made)
    }

    /// Reads into `values` and says how many elements there are (at most that many were written).
    fn get<T>(&self, attribute: Attribute, element: Element, values: &mut [T]) -> Result<usize, CudaError> {
        let (capacity, data) = (values.len() as i64, values.as_mut_ptr().cast::<c_void>());
        let data = if values.is_empty() { std::ptr::null_mut() } else { data };
        let mut count = 0i64;
        // SAFETY: the library writes at most `capacity` elements of the type that belongs to `element`.
        let status = unsafe {
            let get = self.cudnn.functions.backend_get;
            get(self.raw, attribute as u32, element as u32, capacity, &mut count, data)
        };
        check(self.cudnn, || format!("get {attribute:?}"), status)?;
        Ok(count.max(0) as usize)
    }

    pub(super) fn cudnn(&self) -> &'static Cudnn {
        self.cudnn
    }

    /// Runs this plan with a variant pack on the handle's stream.
    pub(super) fn execute(&self, handle: &Handle, pack: &Descriptor) -> Result<(), CudaError> {
        // SAFETY: all three live and are finalized; the caller of `Plan::bind` answered for the addresses.
        let status = unsafe { (self.cudnn.functions.backend_execute)(handle.raw, self.raw, pack.raw) };
        check(self.cudnn, || "cudnnBackendExecute".into(), status)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the handle is ours.
        unsafe { (self.cudnn.functions.backend_destroy)(self.raw) };
    }
}
