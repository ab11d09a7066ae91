//! The parts that an append comes in, put together.

use bytes::{Bytes, BytesMut};

use crate::coding::Reader;
use crate::fault::Fault;

/// What stands behind the whole events of a block.
const PADDING: i32 = -1;
const PARTIAL_EVENT: i32 = -2;

/// The bytes of an append: the whole events of its block, and an event that begins there and goes on in the end.
pub(crate) fn join(block: Option<Bytes>, whole: i32, end: Bytes) -> Result<Bytes, Fault> {
    let Some(mut block) = block else {
        let is_whole = usize::try_from(whole) == Ok(end.len());
        let length = end.len();
        let whole = i64::from(whole);
        return if is_whole {
            Ok(end)
        } else {
            Err(Fault::Block { whole, length })
        };
    };
    let stated = usize::try_from(whole).ok().filter(|whole| *whole <= block.len());
    let wrong = Fault::Block {
        whole: i64::from(whole),
        length: block.len(),
    };
    let behind = block.split_off(stated.ok_or(wrong)?);
    if behind.is_empty() {
        return Ok(block);
    }
    let mut reader = Reader::new(&behind);
    match reader.i32()? {
        PADDING => Ok(block),
        PARTIAL_EVENT => {
            let begun = reader.sized()?;
            let mut joined = BytesMut::with_capacity(block.len() + begun.len() + end.len());
            joined.extend_from_slice(&block);
            joined.extend_from_slice(begun);
            joined.extend_from_slice(&end);
            Ok(joined.freeze())
        }
        other => Err(Fault::NoEvent(other)),
    }
}
