//! What the fuzzer of whole connections begins with, as ordinary tests. See `fuzz/fuzz_targets/connection.rs`.

#[path = "../fuzz/shared/connection.rs"]
mod connection;

use connection::House;
use std::{fs, path::Path};

#[test]
fn every_connection_of_the_corpus_is_read_as_others_read_it_however_it_is_cut() {
    let house = House::open();
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/connection");
    let mut paths: Vec<_> = fs::read_dir(seeds)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() > 10);
    for path in paths {
        let input = fs::read(&path).unwrap();
        let served = house.check(&input[1..], usize::MAX);
        assert_eq!(house.check(&input[1..], 1), served, "{path:?}");
        // The name says how many are served, the canary with them.
        let name = path.file_stem().unwrap().to_str().unwrap();
        let wanted = name.rsplit('_').next().unwrap().parse::<usize>().unwrap();
        assert_eq!(served.len(), wanted, "{name}: {served:?}");
    }
}
