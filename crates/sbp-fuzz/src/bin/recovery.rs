//! The fuzz target `recovery`: see `sbp_fuzz::recovery`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::recovery::run(data));
