//! Batches that were never encoded, at offsets that may have gaps.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use proptest::prelude::*;
use sbp_record::{AssemblyLimits, Batch, ColumnSet, Positions, RecordsBuilder, RowAssembler, Source, TimeWindow};
use sbp_types::{Offset, StreamId, TimestampMs};

use crate::round_trip::row;
use crate::support::{BASE_MS, Row, builder, cases, encode_rows, options, rows_of, with_times};

fn collected(rows: &[Row], offsets: &[i64]) -> Batch {
    let mut builder = builder(rows);
    let positions = Positions::listed(offsets.to_vec()).unwrap();
    let batch = Batch::from_builder(&mut builder, positions, TimestampMs(BASE_MS)).unwrap();
    assert!(builder.is_empty());
    batch
}

fn offsets_of(columns: &RecordBatch) -> Vec<i64> {
    columns["offset"].as_primitive::<Int64Type>().values().to_vec()
}

/// A batch through an assembler, whole record batches put together.
fn assembled(batch: &Batch, from: i64, to: i64, limits: AssemblyLimits) -> Vec<RecordBatch> {
    let mut assembler = RowAssembler::with_limits(ColumnSet::records(true), limits);
    let source = Source {
        name: Arc::from("orders/3"),
        id: StreamId(3),
    };
    assembler.push(&source, batch, Offset(from), Offset(to)).unwrap();
    assembler.flush().unwrap();
    std::iter::from_fn(|| assembler.poll_batch()).collect()
}

fn listed() -> impl Strategy<Value = (Vec<Row>, Vec<i64>)> {
    prop::collection::vec((row(), 1_i64..4), 1..40).prop_map(|rows| {
        let mut next = 0;
        let number = |step: i64| {
            next += step;
            next
        };
        let (rows, steps): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let offsets = steps.into_iter().map(number).collect();
        (rows, offsets)
    })
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn a_batch_that_was_never_encoded_is_the_one_that_was(rows in prop::collection::vec(row(), 1..40)) {
        let encoded = encode_rows(&rows, &options(sbp_record::Compression::NONE));
        let decoded = Batch::decode(encoded.freeze(), None).unwrap();
        let base = decoded.base_offset();
        let mut builder = builder(&rows);
        let batch = Batch::from_builder(&mut builder, Positions::dense(base), TimestampMs(BASE_MS)).unwrap();
        prop_assert_eq!(rows_of(&batch), rows_of(&decoded));
        let all = |batch: &Batch| batch.to_record_batch(batch.base_offset(), batch.end_offset()).unwrap();
        prop_assert_eq!(all(&batch), all(&decoded));
        let payloads = |batch: &Batch| batch.payloads().unwrap().collect::<Vec<_>>();
        prop_assert_eq!(payloads(&batch), payloads(&decoded));
        prop_assert_eq!(batch.end_offset(), decoded.end_offset());
    }

    #[test]
    fn every_view_of_a_batch_has_its_offsets(
        (rows, offsets) in listed(),
        (from, to) in (-1_i64..130, -1_i64..130),
        min_rows in 1_usize..50,
    ) {
        let batch = collected(&rows, &offsets);
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        prop_assert_eq!((batch.base_offset(), batch.end_offset()), (Offset(first), Offset(last + 1)));
        prop_assert_eq!(batch.record_count(), rows.len());
        prop_assert_eq!(rows_of(&batch), with_times(&rows));
        let wanted: Vec<_> = offsets.iter().copied().filter(|at| (from..to).contains(at)).collect();
        let (from, to) = (Offset(from), Offset(to));
        let records = batch.records().unwrap().between(from, to);
        prop_assert_eq!(records.map(|record| record.offset.0).collect::<Vec<_>>(), wanted.clone());
        prop_assert_eq!(batch.payloads().unwrap().between(from, to).count(), wanted.len());
        prop_assert_eq!(batch.offsets_between(from, to), wanted.clone());
        prop_assert_eq!(batch.rows_between(from, to).len(), wanted.len());
        let is_run = wanted.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let run = batch.run_between(from, to);
        prop_assert_eq!(run.is_some(), is_run);
        prop_assert!(run.is_none_or(|run| run.eq(wanted.iter().copied())));
        let columns = batch.to_record_batch(from, to).unwrap();
        prop_assert_eq!(offsets_of(&columns), wanted.clone());
        // As a view, and copied together with others.
        let limits = AssemblyLimits { min_rows, ..AssemblyLimits::default() };
        let parts = assembled(&batch, from.0, to.0, limits);
        let told: Vec<_> = parts.iter().flat_map(offsets_of).collect();
        prop_assert_eq!(told, wanted);
        for part in &parts {
            part.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
            prop_assert!(part["stream"].as_string::<i32>().iter().all(|name| name == Some("orders/3")));
            prop_assert!(part["stream_id"].as_primitive::<Int64Type>().values().iter().all(|id| *id == 3));
        }
    }

    #[test]
    fn runs_of_times_pass_over_gaps((rows, offsets) in listed(), start in 0_i64..3_000, span in 0_i64..3_000) {
        let batch = collected(&rows, &offsets);
        let window = TimeWindow {
            start: Some(TimestampMs(BASE_MS - start)),
            end: Some(TimestampMs(BASE_MS + span)),
        };
        let runs = batch.runs_within(Offset(0), Offset(i64::MAX), window);
        let records = |(from, to): &(Offset, Offset)| batch.offsets_between(*from, *to);
        let found: Vec<_> = runs.iter().flat_map(records).collect();
        let timed = with_times(&rows);
        let inside = |row: &Row| row.time.is_some_and(|time| window.has(time));
        let wanted: Vec<_> = offsets.iter().zip(&timed).filter(|(_, row)| inside(row)).map(|(at, _)| *at).collect();
        prop_assert_eq!(found, wanted);
    }
}

#[test]
fn offsets_that_do_not_rise_are_none_of_a_batch() {
    for wrong in [vec![], vec![1, 1], vec![2, 1], vec![-1, 0], vec![0, i64::MAX]] {
        assert!(Positions::listed(wrong.clone()).is_err(), "{wrong:?}");
    }
    let rows = [Row::value(b"a"), Row::value(b"b")];
    let mismatched = [
        Positions::listed(vec![1, 3, 5]).unwrap(),
        Positions::dense(Offset(-1)),
        Positions::dense(Offset(i64::MAX - 1)),
    ];
    for positions in mismatched {
        let mut builder = builder(&rows);
        assert!(Batch::from_builder(&mut builder, positions, TimestampMs(0)).is_err());
        assert_eq!(builder.len(), 2, "the records are kept");
    }
    let none = Batch::from_builder(&mut RecordsBuilder::new(), Positions::dense(Offset(0)), TimestampMs(0));
    assert!(none.is_err());
}

#[test]
fn records_stay_where_they_were_copied_to() {
    let rows = [Row::value(b"first"), Row::value(b"second")];
    let batch = collected(&rows, &[5, 9]);
    let columns = batch.to_record_batch(Offset(0), Offset(10)).unwrap();
    let column = columns["value"].as_binary::<i32>().value(1).as_ptr();
    let payload = batch.payloads().unwrap().nth(1).flatten().unwrap().as_ptr();
    let record = batch
        .records()
        .unwrap()
        .nth(1)
        .and_then(|record| record.value)
        .unwrap()
        .as_ptr();
    assert_eq!([column, payload], [record; 2]);
}
