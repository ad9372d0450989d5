//! How events are told apart, however they are cut. Source: field-cases.md O-08, O-17.

use super::{Meter, counts, delta, event, meter};

const USAGE: &str = r#"{"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;

#[test]
fn comments_and_other_fields_are_stepped_over() {
    let stream = format!(
        ": keep-alive\n\nretry: 1000\nid: 7\nevent: x\n{}: ping\n\nevent: ping\n\n{}",
        delta(r#"{"content":"hi"}"#),
        event(USAGE)
    );
    let usage = meter(stream);
    assert_eq!(counts(&usage), (Some(9), Some(2), true));
    assert_eq!((usage.output_bytes, usage.events), (2, 2));
}

#[test]
fn every_line_ending_works() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = format!("{}{}", delta(r#"{"content":"hi"}"#), event(USAGE)).replace('\n', end);
        let usage = meter(&stream);
        assert_eq!(counts(&usage), (Some(9), Some(2), true), "{end:?}");
        assert_eq!(
            (usage.output_bytes, usage.events, usage.at_boundary),
            (2, 2, true)
        );
        let cut = meter(&stream[..stream.len() - end.len()]);
        assert!(!cut.at_boundary, "{end:?}");
        assert_eq!(cut.events, 1);
    }
}

#[test]
fn an_event_may_follow_only_after_a_whole_blank_line() {
    for (stream, at_boundary) in [
        ("", true),
        ("data: x", false),
        ("data: x\n", false),
        ("data: x\n\n", true),
        ("data: x\n\n\n", true),
        ("data: x\r", false),
        ("data: x\r\n", false),
        ("data: x\r\n\r", false),
        ("data: x\r\n\r\n", true),
        ("data: x\r\r", true),
        ("data: x\r\r\n", true),
        ("data: x\n\r", false),
        ("data: x\n\r\n", true),
        (": ping\n", false),
        (": ping\n\n", true),
        ("\n", true),
        ("\r", false),
        ("\r\n", true),
        ("data: x\n\nd", false),
        ("\u{feff}", true),
        ("\u{feff}data: x\n\n", true),
    ] {
        assert_eq!(meter(stream).at_boundary, at_boundary, "{stream:?}");
    }
    assert!(!meter(b"\xef\xbb").at_boundary);
}

#[test]
fn a_byte_order_mark_is_dropped_at_the_start_only() {
    assert_eq!(
        meter(format!("\u{feff}{}", event(USAGE))).prompt_tokens,
        Some(9)
    );
    let later = format!("{}\u{feff}{}", event("{}"), event(USAGE));
    assert_eq!(meter(later).prompt_tokens, None);
    let half = [b"\xef\xbb", event(USAGE).as_bytes()].concat();
    assert_eq!(meter(half).prompt_tokens, None);
}

#[test]
fn data_over_several_lines_is_one_event() {
    let usage = meter(
        "data: {\"usage\":{\"prompt_tokens\":\ndata: 9\ndata: ,\ndata:\"completion_tokens\": 2}\ndata\ndata: }\n\n",
    );
    assert_eq!(counts(&usage), (Some(9), Some(2), true));
    assert_eq!(usage.events, 1);
}

#[test]
fn events_without_a_blank_line_between_are_metered_nevertheless() {
    let usage = meter(format!("data: {USAGE}\ndata: [DONE]\n"));
    assert_eq!(counts(&usage), (Some(9), Some(2), true));
    assert!(usage.terminator_seen && !usage.at_boundary);
}

#[test]
fn empty_data_is_no_event() {
    for stream in ["data:\n\n", "data: \n\n", "data\n\n", "data:\ndata:\n\n"] {
        let usage = meter(stream);
        assert_eq!((usage.events, usage.at_boundary), (0, true), "{stream:?}");
    }
}

#[test]
fn literals_that_json_does_not_have_disturb_nothing() {
    for literal in ["NaN", "-Infinity", "Infinity", "-inf", "nan", "undefined"] {
        let stream = format!(
            "{}{}",
            event(&format!(
                r#"{{"choices":[{{"logprobs":{{"content":[{{"logprob":{literal}}}]}},"index":{literal},"delta":{{"content":"hi"}}}}],"x":{literal},"usage":{{"prompt_tokens":1,"completion_tokens":1}}}}"#
            )),
            delta(r#"{"content":"hi"}"#)
        );
        let usage = meter(stream);
        assert_eq!(counts(&usage), (Some(1), Some(1), true), "{literal}");
        assert_eq!(
            (usage.output_bytes, usage.finish_seen),
            (4, false),
            "{literal}"
        );
    }
}

#[test]
fn a_broken_event_does_not_disturb_the_next() {
    for broken in [
        "{",
        "}}}]]",
        "{\"choices\":[{\"delta\":{\"content\":\"",
        "\"",
        "{\"a\":\"\\",
        "{\"a\":\"\\u1",
        "[[[[[[[[[[[[[[",
        "{\"usage\":{\"prompt_tokens\":77",
        "plain words",
        "{\"usage\":{\"prompt_tokens\":77}",
        "{\"a\":tru",
    ] {
        let usage = meter(event(broken) + &event(USAGE) + &delta(r#"{"content":"hi"}"#));
        assert_eq!(counts(&usage), (Some(9), Some(2), true), "{broken}");
        assert_eq!((usage.output_bytes, usage.events), (2, 3), "{broken}");
    }
}

#[test]
fn an_event_of_two_mebibytes_is_metered_like_any_other() {
    let text = "x".repeat(2 << 20);
    let stream = format!(
        "{}{}",
        event(&format!(
            r#"{{"choices":[{{"delta":{{"content":"{text}"}}}}],"usage":{{"prompt_tokens":9,"completion_tokens":2}}}}"#
        )),
        delta(r#"{"content":"hi"}"#)
    );
    let mut meter = Meter::new();
    for piece in stream.as_bytes().chunks(16 << 10) {
        meter.feed(piece);
    }
    let usage = meter.snapshot();
    assert_eq!(usage.output_bytes, (2 << 20) + 2);
    assert_eq!(counts(&usage), (Some(9), Some(2), true));
}

#[test]
fn a_meter_stays_small_whatever_it_is_fed() {
    assert!(size_of::<Meter>() <= 512, "{}", size_of::<Meter>());
    let mut meter = Meter::new();
    meter.feed("[".repeat(1 << 20).as_bytes());
    meter.feed(b"\ndata: ");
    meter.feed("[{\"choices\":".repeat(100_000).as_bytes());
    meter.feed(b"\n\n");
    meter.feed(event(USAGE).as_bytes());
    assert_eq!(meter.snapshot().events, 2);
    assert!(meter.snapshot().exact);
}

#[test]
fn a_thousand_events_in_one_piece_are_all_metered() {
    let usage = meter(delta(r#"{"content":"hi"}"#).repeat(1000));
    assert_eq!(
        (usage.output_bytes, usage.events, usage.output_events),
        (2000, 1000, 1000)
    );
}

#[test]
fn output_of_an_event_counts_before_its_end() {
    let mut meter = Meter::new();
    meter.feed(br#"data: {"choices":[{"delta":{"content":"hel"#);
    assert_eq!(meter.output_bytes(), 3);
    assert_eq!(meter.snapshot().output_events, 0);
}

#[test]
fn odd_numbers_are_counts_only_where_they_are_whole() {
    for (literal, count) in [
        ("9", Some(9)),
        ("9.0", Some(9)),
        ("9e0", Some(9)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("-9", None),
        ("9.5", None),
        ("1e999", None),
        ("NaN", None),
        ("null", None),
        ("\"9\"", None),
        ("[9]", None),
        ("9999999999999999999999999999999999999999", None),
    ] {
        let usage = meter(event(&format!(
            r#"{{"usage":{{"input_tokens":{literal}}}}}"#
        )));
        assert_eq!(usage.prompt_tokens, count, "{literal}");
    }
}
