//! The fuzz target `frame`: see `sbp_fuzz::frame`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::frame::run(data));
