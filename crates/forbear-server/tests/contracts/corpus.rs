//! Answers that broke somebody's reader, or could: the corpus in `corpus/`, replayed through every contract that ships. How
//! each is read where nothing is known of its provider stands in `corpus/expected.txt`; `FORBEAR_TEST_BLESS=1` writes it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use forbear_core::classify::{Classification, ResponseFacts, classify};
use forbear_core::contract::Contract;
use forbear_core::policy::Rank;
use forbear_core::time::{Mono, Now, Wall};
use forbear_server::config::{known_contracts, load_text};
use http::{HeaderMap, HeaderName, HeaderValue};

/// 784111747 is the `Date` of those that have one.
const NOW: Now = Now { mono: Mono(1), wall: Wall(784_111_747_000) };

struct Input {
    name: String,
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Input {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let mut lines = bytes[..end].split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let status = lines.next().unwrap();
        let mut headers = HeaderMap::new();
        for line in lines {
            let colon = line.iter().position(|b| *b == b':').unwrap();
            let name = HeaderName::from_bytes(&line[..colon]).unwrap();
            headers.append(name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).unwrap());
        }
        Self {
            name: path.file_stem().unwrap().to_str().unwrap().into(),
            status: str::from_utf8(&status[9..12]).unwrap().parse().unwrap(),
            headers,
            body: bytes[end + 4..].to_vec(),
        }
    }

    fn classify(&self, contract: &Contract, rank: Rank) -> Classification {
        let facts =
            ResponseFacts { status: self.status, headers: &self.headers, body: Some(&self.body), received: NOW };
        classify(contract, rank, &facts)
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contracts/corpus")
}

fn inputs() -> Vec<Input> {
    let files = std::fs::read_dir(directory()).unwrap().map(|f| f.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|f| f.extension().is_some_and(|e| e == "http")).collect();
    files.sort_unstable();
    files.iter().map(|file| Input::read(file)).collect()
}

#[test]
fn no_answer_of_the_corpus_breaks_a_contract() {
    let known = known_contracts(&load_text("t", "").unwrap());
    let inputs = inputs();
    assert!(inputs.len() > 40);
    for input in inputs {
        for (name, contract) in &known {
            for rank in Rank::ALL {
                let read = input.classify(contract, rank);
                let bounded = read.malformed.len() <= 16
                    && read.windows.len() <= 64
                    && read.contradictions.len() <= 16
                    && read.code.as_ref().is_none_or(|code| code.len() <= 64);
                assert!(bounded, "{} by {name}: {read:?}", input.name);
                let text = serde_json::to_string(&read).unwrap();
                assert_eq!(serde_json::from_str::<Classification>(&text).unwrap(), read, "{} by {name}", input.name);
            }
        }
    }
}

#[test]
fn each_answer_of_the_corpus_is_read_as_it_was() {
    let mut said = String::new();
    for input in inputs() {
        let read = input.classify(&Contract::default(), Rank::Read);
        let wait = read.boundary.as_ref().map_or("no boundary".to_owned(), |b| format!("{} ms", b.wait_ms));
        let kind = serde_json::to_value(read.kind).unwrap();
        writeln!(said, "{}: {}, {wait}, {}", input.name, kind.as_str().unwrap(), read.rule).unwrap();
        read.contradictions.iter().for_each(|what| writeln!(said, "  against each other: {what}").unwrap());
        read.malformed.iter().for_each(|what| writeln!(said, "  unreadable: {what}").unwrap());
    }
    let file = directory().join("expected.txt");
    if std::env::var_os("FORBEAR_TEST_BLESS").is_some() {
        std::fs::write(&file, &said).unwrap();
    }
    assert_eq!(said, std::fs::read_to_string(&file).unwrap_or_default());
}
