//! Converts columns in other Arrow layouts to those of a stream, without changing a value.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{DataType, Field, Schema};

use super::words::words;
use super::{StreamSchema, same_layout};
use crate::error::{EncodeError, SchemaError};
use crate::layout::plain_array;

impl StreamSchema {
    /// Checks that the stream has a column of each of these names.
    ///
    /// # Errors
    ///
    /// [`SchemaError::UnknownColumn`]: the stream does not have one, or did not when this schema was read.
    pub fn check_names(&self, columns: &Schema) -> Result<(), SchemaError> {
        let unknown = |field: &&Arc<Field>| self.arrow().column_with_name(field.name()).is_none();
        match columns.fields().iter().find(unknown) {
            Some(extra) => Err(unknown_column(extra.name())),
            None => Ok(()),
        }
    }

    /// Converts the columns for [`encode_arrow`](crate::encode_arrow): to the stream's order and the layouts that
    /// streams store, with nulls for missing columns that allow them. No value is changed: a column of another type is
    /// refused.
    ///
    /// # Errors
    ///
    /// A column has another type, is missing, or is not in the stream's schema; the error names it, and the cast to
    /// use.
    pub fn fit(&self, columns: &RecordBatch) -> Result<RecordBatch, EncodeError> {
        let wanted = self.arrow().fields();
        let found = columns.schema_ref().fields();
        self.check_names(columns.schema_ref())?;
        let is_as_stored = wanted.len() == found.len()
            && wanted.iter().zip(found).all(|(wanted, found)| {
                wanted.name() == found.name() && same_layout(wanted.data_type(), found.data_type())
            });
        if is_as_stored {
            return Ok(columns.clone());
        }
        // Missing columns at the end are left out, and readers read them as nulls.
        let last = wanted
            .iter()
            .rposition(|field| !field.is_nullable() || columns.column_by_name(field.name()).is_some());
        let mut arrays = Vec::with_capacity(wanted.len());
        let mut fields = Vec::with_capacity(wanted.len());
        for field in wanted.iter().take(last.map_or(0, |last| last + 1)) {
            let array = match columns.column_by_name(field.name()) {
                Some(array) => fit_column(field, array)?,
                None if field.is_nullable() => new_null_array(field.data_type(), columns.num_rows()),
                None => return Err(missing(field).into()),
            };
            fields.push(Field::new(field.name(), array.data_type().clone(), true));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(columns.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).map_err(EncodeError::Arrow)
    }
}

fn fit_column(field: &Field, array: &ArrayRef) -> Result<ArrayRef, SchemaError> {
    if *array.data_type() == DataType::Null && field.is_nullable() {
        return Ok(new_null_array(field.data_type(), array.len()));
    }
    let plain = plain_array(array).map_err(|error| {
        let wanted = words(field.data_type());
        let advice = format!("cast it to {wanted} ({error})");
        SchemaError::column(field.name(), wanted, words(array.data_type()), advice)
    })?;
    if !same_layout(field.data_type(), plain.data_type()) {
        return Err(mismatch(field, field.name(), array.data_type()));
    }
    Ok(plain)
}

/// The error for a column of another type than the stream's.
pub(crate) fn mismatch(field: &Field, path: &str, found: &DataType) -> SchemaError {
    let wanted = words(field.data_type());
    let advice = format!("cast it to {wanted}");
    SchemaError::column(path, wanted, words(found), advice)
}

/// The error for a column that the stream does not have.
pub(crate) fn unknown_column(name: &str) -> SchemaError {
    // pandas gives this name to the index of a data frame.
    let what = if name.starts_with("__index_level_") {
        format!("column \"{name}\" is the frame's index, which the stream does not have; reset_index(drop=True) first")
    } else {
        format!("column \"{name}\" is not in the stream's schema; drop it, or add it to the stream first")
    };
    SchemaError::UnknownColumn {
        column: name.to_owned(),
        what,
    }
}

fn missing(field: &Field) -> SchemaError {
    SchemaError::Shape(format!(
        "column \"{}\" is missing, and the stream does not allow nulls in it; add it as {}",
        field.name(),
        words(field.data_type())
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_array::{
        ArrayRef, DictionaryArray, Int32Array, Int64Array, LargeListArray, LargeStringArray, NullArray, RecordBatch,
        StringArray, StringViewArray,
    };
    use arrow_schema::{DataType, Field, Schema};
    use bytes::BytesMut;

    use crate::{EncodeOptions, StreamSchema, encode_arrow};

    fn schema() -> StreamSchema {
        let items = Arc::new(Field::new("item", DataType::Int32, true));
        StreamSchema::from_arrow(&Schema::new(vec![
            Field::new("n", DataType::Int64, false),
            Field::new("text", DataType::Utf8, true),
            Field::new("list", DataType::List(items), true),
        ]))
        .unwrap()
    }

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
    }

    fn numbers() -> ArrayRef {
        Arc::new(Int64Array::from(vec![1, 2]))
    }

    #[test]
    fn every_layout_of_text_is_text() {
        let texts: [ArrayRef; 4] = [
            Arc::new(StringArray::from(vec![Some("a"), None])),
            Arc::new(LargeStringArray::from(vec![Some("a"), None])),
            Arc::new(StringViewArray::from(vec![Some("a"), None])),
            Arc::new([Some("a"), None].into_iter().collect::<DictionaryArray<Int32Type>>()),
        ];
        for text in texts {
            let fitted = schema().fit(&batch(vec![("text", text), ("n", numbers())])).unwrap();
            assert_eq!(fitted.schema().field(0).name(), "n");
            let text = fitted.column(1).as_string::<i32>();
            assert_eq!(text.iter().collect::<Vec<_>>(), [Some("a"), None]);
            encode_arrow(&EncodeOptions::default(), &schema(), &fitted, &mut BytesMut::new()).unwrap();
        }
    }

    #[test]
    fn lists_and_missing_columns() {
        let lists = LargeListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
        let fitted = schema()
            .fit(&batch(vec![("list", Arc::new(lists)), ("n", numbers())]))
            .unwrap();
        assert_eq!(fitted.num_columns(), 3);
        assert_eq!(
            fitted.column(1).null_count(),
            2,
            "a column between that is missing is null"
        );
        assert_eq!(fitted.column(2).as_list::<i32>().value(0).len(), 2);
        encode_arrow(&EncodeOptions::default(), &schema(), &fitted, &mut BytesMut::new()).unwrap();
        let fitted = schema().fit(&batch(vec![("n", numbers())])).unwrap();
        assert_eq!(fitted.num_columns(), 1, "columns at the end are left away");
        let nulls: ArrayRef = Arc::new(NullArray::new(2));
        let fitted = schema().fit(&batch(vec![("n", numbers()), ("text", nulls)])).unwrap();
        assert_eq!(*fitted.column(1).data_type(), DataType::Utf8);
    }

    #[test]
    fn other_values_are_refused_by_column_and_cast() {
        let refuse = |columns| schema().fit(&batch(columns)).unwrap_err().to_string();
        let int32: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        assert_eq!(
            refuse(vec![("n", Arc::clone(&int32))]),
            "column \"n\": int64 is wanted, the data has int32; cast it to int64"
        );
        let lists =
            LargeListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>([Some(vec![Some(1)]), None]);
        assert_eq!(
            refuse(vec![("n", numbers()), ("list", Arc::new(lists))]),
            "column \"list\": list<int32> is wanted, the data has large_list<int64>; cast it to list<int32>"
        );
        assert!(refuse(vec![("text", Arc::new(StringArray::from(vec!["a", "b"])))]).contains("\"n\" is missing"));
        assert!(refuse(vec![("n", numbers()), ("m", numbers())]).contains("\"m\" is not in the stream's schema"));
        assert!(refuse(vec![("n", numbers()), ("__index_level_0__", numbers())]).contains("reset_index"));
    }
}
