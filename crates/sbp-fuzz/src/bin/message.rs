//! The fuzz target `message`: see `sbp_fuzz::message`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::message::run(data));
