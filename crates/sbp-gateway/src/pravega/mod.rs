//! A Pravega server in front of an SBP service.

// What the segment store and the controller share; both come with the listener.
#![allow(dead_code)]

mod catalog;
mod names;
