//! The target `retry_after`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forbear_fuzz::check("retry_after", data));
