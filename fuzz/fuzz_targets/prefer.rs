//! The target `prefer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forbear_fuzz::check("prefer", data));
