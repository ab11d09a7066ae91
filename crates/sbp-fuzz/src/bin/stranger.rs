//! The fuzz target `stranger`: see `sbp_fuzz::stranger`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::stranger::run(data));
