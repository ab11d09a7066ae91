//! The fuzz target `batch`: see `sbp_fuzz::batch`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::batch::run(data));
