//! The log from outside: what it promises, and what becomes of it when disks and power fail.

mod basic;
mod common;
