//! Tensors in ordinary host memory: what goes into and comes out of a device, a checkpoint or a test.

use crate::{DType, Element, Shape, TensorType};
use ndarray::{ArrayD, ArrayViewD, IxDyn};
use thiserror::Error;

/// Why a host tensor could not be made or read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TensorError {
    /// The number of elements does not match the shape.
    #[error("a tensor of shape {shape} holds {expected} elements, found {found}")]
    Count {
        /// The shape asked for.
        shape: Shape,
        /// Elements of that shape.
        expected: u64,
        /// Elements or bytes given.
        found: u64,
    },
    /// The element type asked for is not the tensor's.
    #[error("the tensor holds {found}, asked for as {expected}")]
    Type {
        /// The type asked for.
        expected: DType,
        /// The tensor's type.
        found: DType,
    },
}

/// A dense tensor in host memory, in logical order (row-major, outermost dimension first), little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTensor {
    shape: Shape,
    dtype: DType,
    bytes: Vec<u8>,
}

impl HostTensor {
    /// A tensor from its elements.
    ///
    /// # Errors
    /// [`TensorError::Count`] when `elements` does not fill `shape`.
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, elements: &[T]) -> Result<Self, TensorError> {
        Self::from_bytes(shape, T::DTYPE, bytemuck::cast_slice(elements).to_vec())
    }

    /// A tensor from raw bytes.
    ///
    /// # Errors
    /// [`TensorError::Count`] when `bytes` does not fill `shape`.
    pub fn from_bytes(shape: impl Into<Shape>, dtype: DType, bytes: Vec<u8>) -> Result<Self, TensorError> {
        let shape = shape.into();
        let expected = shape.elements();
        if bytes.len() as u64 != expected.saturating_mul(dtype.size()) {
            return Err(TensorError::Count { shape, expected, found: bytes.len() as u64 / dtype.size() });
        }
        Ok(HostTensor { shape, dtype, bytes })
    }

    /// A tensor of zeros.
    pub fn zeros(shape: impl Into<Shape>, dtype: DType) -> Self {
        let shape = shape.into();
        let len = (shape.elements() * dtype.size()) as usize;
        HostTensor { shape, dtype, bytes: vec![0; len] }
    }

    /// A tensor from an `ndarray` array.
    pub fn from_array<T: Element>(array: &ArrayViewD<'_, T>) -> Self {
        let dims: Vec<u64> = array.shape().iter().map(|&dim| dim as u64).collect();
        let elements: Vec<T> = array.iter().copied().collect();
        HostTensor { shape: Shape::new(dims), dtype: T::DTYPE, bytes: bytemuck::cast_slice(&elements).to_vec() }
    }

    /// The elements as an `ndarray` array.
    ///
    /// # Errors
    /// [`TensorError::Type`] when the tensor holds another dtype.
    pub fn to_array<T: Element>(&self) -> Result<ArrayD<T>, TensorError> {
        let dims: Vec<usize> = self.shape.dims().iter().map(|&dim| dim as usize).collect();
        let elements = self.to_vec::<T>()?;
        Ok(ArrayD::from_shape_vec(IxDyn(&dims), elements).expect("a host tensor's bytes always fill its shape"))
    }

    /// The elements in logical order.
    ///
    /// # Errors
    /// [`TensorError::Type`] when the tensor holds another dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, TensorError> {
        if self.dtype != T::DTYPE {
            return Err(TensorError::Type { expected: T::DTYPE, found: self.dtype });
        }
        Ok(bytemuck::allocation::pod_collect_to_vec(&self.bytes))
    }

    /// The logical shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The type in the logical layout.
    pub fn ty(&self) -> TensorType {
        TensorType::new(self.shape.clone(), self.dtype)
    }

    /// The raw little-endian bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The raw little-endian bytes, to be overwritten in place.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_through_ndarray() {
        let tensor = HostTensor::from_slice([2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let array = tensor.to_array::<f32>().unwrap();
        assert_eq!(array[[1, 2]], 6.0);
        assert_eq!(HostTensor::from_array(&array.view()), tensor);
    }

    #[test]
    fn refuses_wrong_counts_and_types() {
        assert_eq!(
            HostTensor::from_slice([2, 2], &[1i32; 3]).unwrap_err(),
            TensorError::Count { shape: [2, 2].into(), expected: 4, found: 3 }
        );
        let labels = HostTensor::zeros([4], DType::I32);
        assert!(matches!(labels.to_vec::<f32>(), Err(TensorError::Type { .. })));
    }
}
