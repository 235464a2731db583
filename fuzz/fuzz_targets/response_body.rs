//! The target `response_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forbear_fuzz::check("response_body", data));
