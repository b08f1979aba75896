#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenure::fuzzing::mongodb_answer(data));
