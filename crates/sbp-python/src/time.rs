//! Times and timeouts as callers give them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};
use sbp_record::{is_calendar_time, other_unit};
use sbp_types::TimestampMs;

use crate::errors;
use crate::interpreter::once::interned;

/// This machine's time, for records that carry none.
pub(crate) fn now() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A point in time as callers give it: milliseconds since the epoch, or a `datetime`. One without a zone is refused.
///
/// # Errors
///
/// `TypeError` for what is no time; `InvalidRequestError` for a time that no calendar has, which is one in another unit.
pub(crate) fn timestamp(value: &Bound<'_, PyAny>) -> PyResult<TimestampMs> {
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        let milliseconds = value.extract::<i64>().ok().map(TimestampMs);
        return milliseconds.filter(|&time| is_calendar_time(time)).ok_or_else(|| {
            let what = format!(
                "the time {value} is not in the years 1 to 9999: a number is milliseconds since 1970{}",
                milliseconds.map_or("", |time| other_unit(time.0))
            );
            errors::invalid(value.py(), &what)
        });
    }
    let py = value.py();
    let naive = || PyTypeError::new_err("a time is milliseconds since 1970 as int, or a datetime with a time zone");
    if !value.hasattr(interned!(py, "tzinfo"))? || value.getattr(interned!(py, "tzinfo"))?.is_none() {
        return Err(naive());
    }
    let seconds = value
        .call_method0(interned!(py, "timestamp"))
        .map_err(|_| naive())?
        .extract::<f64>()?;
    // Milliseconds of any calendar date fit into 53 bits.
    Ok(TimestampMs((seconds * 1_000.0).round() as i64))
}

/// A timeout given in seconds.
pub(crate) fn seconds(timeout: f64) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(timeout) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(PyValueError::new_err(format!(
            "timeout is seconds, more than 0 and finite, not {timeout}"
        ))),
    }
}

/// A timeout that may be left to the client's default.
pub(crate) fn duration(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    timeout.map(seconds).transpose()
}
