//! What rows hold, as one number: whether a batch of Spark's is the one that was committed under its number.
//!
//! The number is kept in streams for years, so that nothing here may change: not the hash, its seeds, or what is hashed.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use pyo3::prelude::*;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::errors;
use crate::memory::arrow;

/// The hash of a null, wherever it stands. A column of nulls does not count.
const NULL: u64 = 0;

/// Items of lists and fields of structs are added to a hash that begins with this.
const NESTED: u64 = 1;

/// The sum of the rows' hashes, modulo 2**64.
///
/// The order of the rows and of the columns, and where batches end, do not matter; the columns' names do.
#[pyfunction]
pub(crate) fn digest_rows(py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<u64> {
    let (_, batches) = arrow::import_batches(batch)?;
    let digest = py.detach(|| {
        batches
            .iter()
            .map(digest)
            .try_fold(0_u64, |sum, each| Ok(sum.wrapping_add(each?)))
    });
    digest.map_err(|kind: DataType| {
        let what = format!("rows with a column of type {kind} cannot be recognised when they come again");
        errors::schema_mismatch(py, &what)
    })
}

fn digest(batch: &RecordBatch) -> Result<u64, DataType> {
    let mut rows = vec![0_u64; batch.num_rows()];
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let name = xxh3_64(field.name().as_bytes());
        for (row, value) in rows.iter_mut().zip(hashes(column)?) {
            if value != NULL {
                *row = row.wrapping_add(joined(name, value));
            }
        }
    }
    // Hashed once more: the sum of plain sums would not tell which values stand in one row.
    Ok(rows
        .into_iter()
        .fold(0, |sum, row| sum.wrapping_add(xxh3_64(&row.to_le_bytes()))))
}

/// The hash of every item.
fn hashes(array: &dyn Array) -> Result<Vec<u64>, DataType> {
    let nulls = array.logical_nulls();
    let is_null = |item: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(item));
    let mut found = plain(array)?;
    for (item, hash) in found.iter_mut().enumerate() {
        if is_null(item) {
            *hash = NULL;
        }
    }
    Ok(found)
}

/// The same, whatever stands where an item is null.
fn plain(array: &dyn Array) -> Result<Vec<u64>, DataType> {
    let all = 0..array.len();
    let kind = array.data_type();
    if let Some(width) = kind.primitive_width() {
        return Ok(fixed(array, width));
    }
    Ok(match kind {
        DataType::Null => vec![NULL; array.len()],
        DataType::Boolean => {
            let values = array.as_boolean();
            all.map(|item| xxh3_64(&[u8::from(values.value(item))])).collect()
        }
        DataType::Utf8 => array.as_string::<i32>().iter().map(text).collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().map(text).collect(),
        DataType::Utf8View => array.as_string_view().iter().map(text).collect(),
        DataType::Binary => array.as_binary::<i32>().iter().map(bytes).collect(),
        DataType::LargeBinary => array.as_binary::<i64>().iter().map(bytes).collect(),
        DataType::BinaryView => array.as_binary_view().iter().map(bytes).collect(),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().iter().map(bytes).collect(),
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let ends = lists.offsets().iter().map(|offset| *offset as usize).collect();
            nested(&hashes(lists.values())?, ends)
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let ends = lists.offsets().iter().map(|offset| *offset as usize).collect();
            nested(&hashes(lists.values())?, ends)
        }
        DataType::Map(..) => {
            let maps = array.as_map();
            let ends = maps.offsets().iter().map(|offset| *offset as usize).collect();
            nested(&hashes(maps.entries())?, ends)
        }
        DataType::FixedSizeList(_, length) => {
            let lists = array.as_fixed_size_list();
            let ends = (0..=array.len()).map(|item| item * *length as usize).collect();
            nested(&hashes(lists.values())?, ends)
        }
        DataType::Struct(_) => {
            let mut found = vec![NESTED; array.len()];
            for field in array.as_struct().columns() {
                for (hash, value) in found.iter_mut().zip(hashes(field)?) {
                    *hash = joined(*hash, value);
                }
            }
            found
        }
        other => return Err(other.clone()),
    })
}

/// Items of so many bytes each: numbers, dates, times, decimals.
fn fixed(array: &dyn Array, width: usize) -> Vec<u64> {
    let data = array.to_data();
    let start = data.offset() * width;
    let values = &data.buffers()[0][start..start + data.len() * width];
    values.chunks_exact(width).map(xxh3_64).collect()
}

/// Lists of items: each from one of these ends to the next.
fn nested(items: &[u64], ends: Vec<usize>) -> Vec<u64> {
    let of = |range: &[usize]| {
        items[range[0]..range[1]]
            .iter()
            .fold(NESTED, |hash, item| joined(hash, *item))
    };
    ends.windows(2).map(of).collect()
}

fn text(value: Option<&str>) -> u64 {
    bytes(value.map(str::as_bytes))
}

fn bytes(value: Option<&[u8]>) -> u64 {
    value.map_or(NULL, xxh3_64)
}

fn joined(before: u64, value: u64) -> u64 {
    xxh3_64_with_seed(&value.to_le_bytes(), before)
}
