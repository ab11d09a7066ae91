//! Arrow messages that pyarrow wrote.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_schema::{DataType, TimeUnit};
use sbp_record::{Batch, StreamSchema};
use sbp_types::Offset;

use crate::support::{consume, wrap};

const SCHEMA: &[u8] = include_bytes!("../vectors/pyarrow-schema.bin");
const BATCH: &[u8] = include_bytes!("../vectors/pyarrow-batch.bin");

#[test]
fn a_schema_message() {
    let schema = StreamSchema::from_ipc(SCHEMA).unwrap();
    let fields = schema.arrow().fields();
    let shown: Vec<_> = fields
        .iter()
        .map(|field| (field.name().as_str(), field.is_nullable()))
        .collect();
    assert_eq!(
        shown,
        [
            ("id", false),
            ("paid", true),
            ("tags", true),
            ("at", true),
            ("map", true)
        ]
    );
    assert_eq!(*fields[1].data_type(), DataType::Decimal128(9, 2));
    assert_eq!(
        *fields[3].data_type(),
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
    );
    assert_eq!(StreamSchema::from_ipc(&schema.to_ipc()).unwrap(), schema);
}

#[test]
fn a_batch_message() {
    let schema = StreamSchema::from_ipc(SCHEMA).unwrap();
    let batch = Batch::decode(wrap(BATCH, 3, 3, schema.fingerprint()), Some(&schema)).unwrap();
    consume(&batch).unwrap();
    let columns = batch.to_record_batch(Offset(0), Offset(3)).unwrap();
    assert_eq!(columns.column(0).as_primitive::<Int64Type>().values(), &[1, 2, 3]);
    let paid: Vec<_> = columns.column(1).as_primitive::<Decimal128Type>().iter().collect();
    assert_eq!(paid, [Some(125), None, Some(-300)]);
    let tags = columns.column(2).as_list::<i32>();
    assert!(tags.is_null(1));
    assert_eq!(
        tags.value(0).as_string::<i32>().iter().collect::<Vec<_>>(),
        [Some("a"), None]
    );
    assert_eq!(
        tags.value(2).as_string::<i32>().iter().collect::<Vec<_>>(),
        [Some("bc")]
    );
    let at: Vec<_> = columns
        .column(3)
        .as_primitive::<TimestampMicrosecondType>()
        .iter()
        .collect();
    assert_eq!(at, [Some(0), Some(1), None]);
    let map = columns.column(4).as_map();
    assert_eq!((map.value_length(0), map.value_length(1), map.is_null(2)), (1, 0, true));
    assert_eq!(map.keys().as_string::<i32>().value(0), "k");
    assert_eq!(map.values().as_primitive::<Int32Type>().value(0), 1);
}
