//! Numbers as bytes, seven bits each, small ones short: for the offsets of very many streams.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Numbers from 0 on as bytes, the low seven bits first.
#[pyfunction]
pub(crate) fn pack_varints<'py>(py: Python<'py>, numbers: Vec<i64>) -> PyResult<Bound<'py, PyBytes>> {
    let mut packed = Vec::with_capacity(numbers.len() * 2);
    for number in numbers {
        let Ok(mut rest) = u64::try_from(number) else {
            return Err(PyOverflowError::new_err(format!("{number} is below 0")));
        };
        while rest >= 0x80 {
            packed.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        packed.push(rest as u8);
    }
    Ok(PyBytes::new(py, &packed))
}

/// What `pack_varints` packed.
#[pyfunction]
pub(crate) fn unpack_varints(packed: &[u8]) -> PyResult<Vec<i64>> {
    let refused = || PyValueError::new_err("these bytes are no numbers of 63 bits");
    let mut numbers = Vec::with_capacity(packed.len());
    let (mut number, mut shift) = (0_i64, 0_u32);
    for &byte in packed {
        let part = i64::from(byte & 0x7f);
        // The ninth byte ends at bit 62; a tenth would reach the sign.
        if shift > 56 {
            return Err(refused());
        }
        number |= part << shift;
        shift += 7;
        if byte < 0x80 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    if shift == 0 { Ok(numbers) } else { Err(refused()) }
}
