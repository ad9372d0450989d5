//! What the fuzzer of engines' answers begins with, as ordinary tests. See `fuzz/fuzz_targets/answers.rs`.

#[path = "../fuzz/shared/answers.rs"]
mod answers;

use answers::{Given, House};
use std::{fs, path::Path};

#[test]
fn every_answer_of_the_corpus_is_read_as_others_read_it_however_it_is_cut() {
    let house = House::open();
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/answers");
    let mut paths: Vec<_> = fs::read_dir(seeds)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut whole = 0;
    for path in &paths {
        let input = fs::read(path).unwrap();
        let given = house.check(&input, 1);
        whole += usize::from(matches!(given, Given::Whole { status: 200, .. }));
    }
    assert!(whole > 3, "{whole} of {}", paths.len());
    assert!(whole < paths.len());
}
