//! The fuzz target `names`: see `sbp_fuzz::names`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::names::run(data));
