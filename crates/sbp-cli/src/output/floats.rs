//! Numbers that JSON does not have.

use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type};
use arrow_array::{Array, PrimitiveArray};
use arrow_json::writer::NullableEncoder;
use arrow_json::{Encoder, EncoderFactory, EncoderOptions};
use arrow_schema::{ArrowError, DataType, FieldRef};

/// Writes NaN and the infinities as text, which `sbp append --format json` reads; the writer itself would write nulls.
#[derive(Debug)]
pub(super) struct Floats;

struct FloatEncoder<'a, T: ArrowPrimitiveType>(&'a PrimitiveArray<T>);

impl<T: ArrowPrimitiveType<Native: Into<f64> + std::fmt::Display>> Encoder for FloatEncoder<'_, T> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = self.0.value(row);
        let text = if value.into().is_finite() {
            value.to_string()
        } else {
            format!("\"{value}\"")
        };
        out.extend_from_slice(text.as_bytes());
    }
}

impl EncoderFactory for Floats {
    fn make_default_encoder<'a>(
        &self,
        _field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Option<Box<dyn Encoder + 'a>> = match array.data_type() {
            DataType::Float32 => encoder::<Float32Type>(array),
            DataType::Float64 => encoder::<Float64Type>(array),
            _ => None,
        };
        Ok(encoder.map(|encoder| NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

fn encoder<'a, T>(array: &'a dyn Array) -> Option<Box<dyn Encoder + 'a>>
where
    T: ArrowPrimitiveType<Native: Into<f64> + std::fmt::Display>,
{
    let array = array.as_any().downcast_ref::<PrimitiveArray<T>>()?;
    Some(Box::new(FloatEncoder(array)))
}
