//! The profile against itself and against bytes that mean harm.

mod absent;
mod changes;
mod dialect;
mod hostile;
mod round_trip;
mod strategies;
mod templates;
