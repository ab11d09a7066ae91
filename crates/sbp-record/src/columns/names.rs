//! The column that repeats the name of a stream.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{Array, ArrayRef};
use arrow_schema::ArrowError;

/// Makes columns of stream names, and keeps the last one. Consecutive record batches are mostly of one stream, and a
/// shorter column of the same name is a slice of a longer one.
#[derive(Debug, Default)]
pub(crate) struct NameColumns {
    kept: Option<(Arc<str>, ArrayRef)>,
}

impl NameColumns {
    /// The name column for these runs of rows.
    pub(super) fn column(&mut self, runs: &[(Arc<str>, usize)]) -> Result<ArrayRef, ArrowError> {
        let [(name, rows)] = runs else { return repeat(runs) };
        if let Some((kept, array)) = self.kept.as_ref().filter(|(_, array)| array.len() >= *rows)
            && kept == name
        {
            return Ok(array.slice(0, *rows));
        }
        let array = repeat(runs)?;
        self.kept = Some((Arc::clone(name), Arc::clone(&array)));
        Ok(array)
    }
}

fn repeat(runs: &[(Arc<str>, usize)]) -> Result<ArrayRef, ArrowError> {
    let rows: usize = runs.iter().map(|(_, rows)| rows).sum();
    let bytes: usize = runs.iter().map(|(name, rows)| name.len().saturating_mul(*rows)).sum();
    i32::try_from(bytes).map_err(|_over| ArrowError::OffsetOverflowError(bytes))?;
    let mut column = StringBuilder::with_capacity(rows, bytes);
    for (name, rows) in runs {
        (0..*rows).for_each(|_| column.append_value(name));
    }
    Ok(Arc::new(column.finish()))
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;

    use super::*;

    fn texts(columns: &mut NameColumns, runs: &[(&str, usize)]) -> Vec<String> {
        let runs: Vec<(Arc<str>, usize)> = runs.iter().map(|(name, rows)| (Arc::from(*name), *rows)).collect();
        let array = columns.column(&runs).unwrap();
        array.to_data().validate_full().unwrap();
        array.as_string::<i32>().iter().flatten().map(str::to_owned).collect()
    }

    #[test]
    fn a_kept_column_is_used_only_for_its_name_and_length() {
        let mut columns = NameColumns::default();
        assert_eq!(texts(&mut columns, &[("a", 3)]), ["a"; 3]);
        assert_eq!(texts(&mut columns, &[("a", 2)]), ["a"; 2]);
        assert_eq!(texts(&mut columns, &[("bc", 2)]), ["bc"; 2]);
        assert_eq!(texts(&mut columns, &[("bc", 5)]), ["bc"; 5]);
        assert_eq!(texts(&mut columns, &[("a", 1), ("bc", 1)]), ["a", "bc"]);
        assert_eq!(texts(&mut columns, &[("bc", 4)]), ["bc"; 4]);
        assert!(texts(&mut columns, &[]).is_empty());
    }

    #[test]
    fn names_longer_than_a_column_can_be_are_refused() {
        let name: Arc<str> = "x".repeat(1 << 20).into();
        assert!(NameColumns::default().column(&[(name, 4_096)]).is_err());
    }
}
