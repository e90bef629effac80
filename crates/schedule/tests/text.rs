//! The text and JSON forms read back exactly, and broken ones are refused with the place.

mod sample;

use proptest::prelude::*;
use sample::{any_schedule, lenet};
use vdnn_schedule::{Schedule, ScheduleError, Space, diff, read_schedule, stats};

#[test]
fn the_text_reads_as_it_should() {
    let text = lenet().to_text();
    let expected = "\
schedule format 1
name      lenet
policy    conv-p
streams   compute offload prefetch
arena     device 2048 of 4096 align 256
arena     host 512 of unlimited align 64
nodes     conv1 conv1.dw
values    image conv1.w conv1 conv1.dw conv1.w'
algos     direct gemm
buffer    %image device[0x0..0x100] home of %image
buffer    %conv1.w device[0x100..0x140] home of %conv1.w
buffer    %conv1 device[0x400..0x600] storage of %conv1
buffer    %conv1.workspace device[0x600..0x800] workspace
buffer    %conv1@host host[0x0..0x200] copy of %conv1
home      %image from %image to %image
home      %conv1.w from %conv1.w to %conv1.w'
commands
 compute  | alloc    %conv1 device[0x400..0x600]                          ; step 0
 compute  | launch   conv1(%image, %conv1.w) -> %conv1 by gemm with %conv1.workspace  ; step 0
 compute  | record   computed %conv1                                      ; idle until step 57
 offload  | wait     computed %conv1                                      ; idle until step 57
 offload  | offload  %conv1 -> %conv1@host                                ; idle until step 57
 compute  | launch   conv1(%image, %conv1.w) -> %conv1[64+2*128/256] by gemm run 1  ; for step 57
 compute  | free     %conv1                                               ; end of layer at step 3
 compute  | wait     computed %conv1                                      ; end of iteration
end
";
    let same = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect::<Vec<_>>();
    let wanted = expected.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect::<Vec<_>>();
    assert_eq!(same, wanted, "{text}");
    assert_eq!(Schedule::parse(&text), Ok(lenet()));
    assert_eq!(Schedule::parse(expected), Ok(lenet()));
}

#[test]
fn errors_give_the_line_what_was_expected_and_what_was_found() {
    let text = lenet().to_text();
    let broken = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        Schedule::parse(&text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    let cases = [
        (
            "free     %conv1 ",
            "free     %conv2 ",
            "line 24: expected the name of a buffer listed above, used once, found conv2",
        ),
        ("| free", "| flee", "line 24: expected alloc, free, launch, offload, prefetch, record or wait, found flee"),
        (
            "launch   conv1(",
            "launch   conv9(",
            "line 19: expected the name of a node listed above, used once, found conv9",
        ),
        (
            "by gemm with",
            "by magic with",
            "line 19: expected the name of an algorithm listed above, used once, found magic",
        ),
        (
            "alloc    %conv1 device[0x400..0x600]",
            "alloc    %conv1 device[0x400..0x700]",
            "line 18: expected device[0x400..0x600]",
        ),
        ("; step 0", "; soon", "expected a cause"),
        ("2*128/256", "2*128", "line 23: expected `/`, found ]"),
        (
            "record   computed %conv1",
            "record   computed %conv7",
            "expected the name of an event known here, found computed %conv1",
        ),
        (
            "[0x0..0x100] home",
            "[0x0..0x100] house",
            "line 10: expected a kind of buffer (home, storage, workspace, copy), found house",
        ),
        ("\nend\n", "\n", "expected a command or end, found the end of the line"),
        ("\nend\n", "\nend\nmore\n", "expected nothing after the end, found more"),
        ("\ncommands\n", "\n", "found"),
    ];
    for (from, to, expected) in cases {
        let message = broken(from, to);
        assert!(message.contains(expected), "{from} → {to}: {message}");
    }
    let other = text.replacen("format 1", "format 7", 1);
    assert_eq!(Schedule::parse(&other), Err(ScheduleError::Format { found: 7, supported: 1 }));
    assert!(Schedule::parse("").is_err());
}

#[test]
fn json_is_refused_with_the_place_or_the_number() {
    let json = lenet().to_json();
    assert_eq!(read_schedule(&json), Ok(lenet()));
    assert_eq!(read_schedule(&lenet().to_text()), Ok(lenet()));
    let other = json.replacen("\"format\":1", "\"format\":2", 1);
    assert_eq!(read_schedule(&other), Err(ScheduleError::Format { found: 2, supported: 1 }));
    let message = read_schedule(&json[..json.len() / 2]).unwrap_err().to_string();
    assert!(message.starts_with("line 1, column "), "{message}");
}

#[test]
fn a_difference_is_a_few_lines() {
    let (a, mut b) = (lenet(), lenet());
    assert_eq!(diff(&a, &b), "");
    b.commands.remove(4);
    b.policy = "none".to_string();
    let text = diff(&a, &b);
    let changed: Vec<&str> = text.lines().filter(|line| line.starts_with(['-', '+'])).collect();
    assert_eq!(changed.len(), 3, "{text}");
    assert!(changed[2].contains("offload  %conv1 -> %conv1@host"), "{text}");
}

#[test]
fn figures_of_a_schedule() {
    let stats = stats(&lenet());
    assert_eq!((stats.commands, stats.recomputed, stats.offload_bytes, stats.prefetch_bytes), (8, 1, 512, 0));
    assert_eq!((stats.streams[0].launches, stats.streams[1].transfers, stats.streams[0].waits), (2, 1, 1));
    assert_eq!((stats.workspace_peak_bytes, stats.peak_bytes[&Space::Host]), (512, 512));
    assert_eq!((stats.live_peak.bytes, stats.live_peak.command), (256 + 64 + 512, Some(0)));
    assert_eq!(stats.live_peak.node.as_deref(), Some("conv1"));
    assert_eq!(stats.live_peak.largest[0], ("conv1".to_string(), 512));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_round_trips(schedule in any_schedule()) {
        let text = schedule.to_text();
        prop_assert_eq!(Schedule::parse(&text), Ok(schedule.clone()), "{}", text);
        prop_assert_eq!(Schedule::from_json(&schedule.to_json()), Ok(schedule));
    }

    #[test]
    fn a_damaged_text_is_an_error_or_a_schedule_but_never_a_panic(cut in 0usize..2000, junk in "\\PC{0,5}") {
        let text = lenet().to_text();
        let mut at = cut.min(text.len());
        while !text.is_char_boundary(at) { at -= 1; }
        let _ = Schedule::parse(&format!("{}{junk}{}", &text[..at], &text[at..]));
        let _ = read_schedule(&text[..at]);
    }
}
