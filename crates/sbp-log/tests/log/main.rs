//! The log from outside: what it promises, and what becomes of it when disks and power fail.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod backup;
mod basic;
mod callers;
mod clear;
mod common;
mod compaction;
mod damage;
mod delays;
mod failures;
mod footers;
mod full_disk;
mod growth;
mod marks;
mod model;
mod power_loss;
mod repair;
mod retention;
mod shared;
mod shared_model;
mod verify;
mod writers;
