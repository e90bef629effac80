//! Machine descriptions: the built-in ones, and what bad files are told.

use vdnn_sim::{CostError, DiskRates, Links, Machine};

const TOY: &str = include_str!("../../machines/toy.json");

fn refusal(from: &str, to: &str) -> String {
    assert!(TOY.contains(from), "the test edits {from:?}, which the file no longer has");
    Machine::parse_file("mine.json", &TOY.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn built_in_machines_parse_and_survive_their_own_json() {
    let cards = ["titan-x", "v100-16", "a100-40", "a100-80", "h100", "h200", "gh200", "rtx-3060-12", "rtx-4090"];
    assert_eq!(Machine::list(), [&cards[..], &["toy"]].concat());
    for name in Machine::list() {
        let machine = Machine::named(name).unwrap();
        assert_eq!(machine.name, name);
        assert_eq!(Machine::parse(&machine.to_json()), Ok(machine));
    }
}

#[test]
fn the_papers_card_has_the_papers_numbers() {
    let machine = Machine::named("titan-x").unwrap();
    assert_eq!((machine.device_bytes, machine.peak_flops.f32, machine.dram), (12 << 30, Some(7e12), 336e9));
    let disk = Some(DiskRates { write: 1.5e9, read: 2.5e9, latency: 100.0 * 1e-6 });
    assert_eq!(machine.links(), Links { latency: 10.0 * 1e-6, disk, ..Links::new(12.8e9, 12.8e9, 12.0e9) });
}

/// What a modelled card achieves rises with its generation, in every type both have a rate for.
#[test]
fn later_cards_are_faster() {
    let card = |name: &str| Machine::named(name).unwrap();
    let rates = |m: &Machine| [m.peak_flops.f32, m.peak_flops.tf32, m.peak_flops.f16, m.peak_flops.bf16];
    let convolution = |m: &Machine| m.convolution.algorithms.iter().map(|a| a.efficiency).fold(0.0, f64::max);
    for pair in ["v100-16", "a100-40", "h100", "h200"].windows(2) {
        let (slower, faster) = (card(pair[0]), card(pair[1]));
        for (a, b) in rates(&slower).into_iter().zip(rates(&faster)) {
            let (Some(a), Some(b)) = (a, b) else { continue };
            assert!(a * convolution(&slower) < b * convolution(&faster), "{pair:?}: convolutions at {a} and {b}");
            assert!(a * slower.gemm_efficiency < b * faster.gemm_efficiency, "{pair:?}: products at {a} and {b}");
        }
    }
    for order in [
        ["titan-x", "v100-16", "a100-40", "a100-80", "h100", "gh200", "h200"].as_slice(),
        ["titan-x", "rtx-3060-12"].as_slice(),
        ["rtx-3060-12", "rtx-4090"].as_slice(),
    ] {
        let memory = |name: &&str| card(name).dram * card(name).dram_efficiency;
        assert!(order.is_sorted_by_key(memory), "{order:?}");
    }
    let links = ["v100-16", "a100-40", "h100", "gh200"].map(|name| card(name).links());
    assert!(links.is_sorted_by(|a, b| a.d2h < b.d2h && a.h2d < b.h2d && a.duplex_each < b.duplex_each), "{links:?}");
}

/// Every file says where its figures come from, and a modelled one that it is modelled.
#[test]
fn no_card_claims_what_was_not_measured() {
    for name in Machine::list() {
        let source = Machine::named(name).unwrap().source;
        let kind = ["measured 20", "modelled", "round numbers"].iter().filter(|kind| source.contains(*kind)).count();
        assert_eq!(kind, 1, "{name}: {source}");
    }
}

/// No disk was measured, and every description says of its own what it rests on.
#[test]
fn disks_say_where_they_are_from() {
    for name in Machine::list() {
        let disk = Machine::named(name).unwrap().disk.unwrap();
        assert!(disk.source.starts_with("assumed") || name == "toy", "{name}: {}", disk.source);
        assert!(disk.write <= disk.read, "{name}");
    }
    let without = TOY.lines().filter(|line| !line.contains("\"disk\"")).collect::<Vec<_>>().join("\n");
    let machine = Machine::parse(&without).unwrap();
    assert_eq!((machine.links().disk, Machine::parse(&machine.to_json())), (None, Ok(machine.clone())));
    let slow = refusal("\"write\": 2.5e7", "\"write\": 0");
    assert_eq!(slow, "mine.json: field disk.write: expected a positive number, found 0");
    let unknown = refusal("\"read\": 2.5e7", "\"read\": 2.5e7, \"queues\": 4");
    assert!(unknown.starts_with("mine.json: field queues: unknown field"), "{unknown}");
}

/// Files without launch delays are as before; only the card on which they were measured states them.
#[test]
fn launch_delays_are_none_unless_stated() {
    let stated: Vec<&str> = Machine::list()
        .into_iter()
        .filter(|name| Machine::named(name).unwrap().links().launch_delay(true, true) > 0.0)
        .collect();
    assert_eq!(stated, ["h200"]);
    let links = Machine::named("h200").unwrap().links();
    assert_eq!((links.launch_delay_d2h, links.launch_delay_h2d), (0.5 * 1e-6, 5.4 * 1e-6));
    let text = TOY.replacen("\"latency_us\": 0", "\"latency_us\": 0, \"launch_delay_h2d_us\": 2", 1);
    let machine = Machine::parse(&text).unwrap();
    assert_eq!((machine.links().launch_delay_d2h, machine.links().launch_delay_h2d), (0.0, 2.0 * 1e-6));
    assert_eq!(Machine::parse(&machine.to_json()), Ok(machine));
    assert!(!Machine::named("titan-x").unwrap().to_json().contains("launch_delay"));
    let early = refusal("\"latency_us\": 0", "\"latency_us\": 0, \"launch_delay_d2h_us\": -1");
    assert_eq!(early, "mine.json: field link.launch_delay_d2h_us: expected a time of at least 0, found -1");
}

#[test]
fn an_unknown_name_is_told_the_nearest() {
    let error = Machine::named("titanx").unwrap_err();
    let CostError::UnknownMachine { nearest, .. } = &error else { panic!("{error}") };
    assert_eq!(nearest[0], "titan-x");
    assert!(error.to_string().starts_with("no machine is called \"titanx\"; nearest: titan-x, "), "{error}");
}

#[test]
fn another_format_is_refused_before_its_fields() {
    let error = Machine::parse(r#"{ "format": 2, "fields": "of the future" }"#).unwrap_err();
    assert_eq!(
        error.to_string(),
        "machine description: field format: expected 1, found 2; write the description in format 1"
    );
}

#[test]
fn bad_fields_are_named_with_their_file() {
    let unknown = refusal("\"dram\":", "\"dram_rate\":");
    assert!(unknown.starts_with("mine.json: field dram_rate: unknown field"), "{unknown}");
    let missing = refusal("\"gemm_efficiency\": 1.0,", "");
    assert!(missing.starts_with("mine.json: field gemm_efficiency: missing field"), "{missing}");
    let mistyped = refusal("\"launch_us\": 0", "\"launch_us\": \"soon\"");
    assert!(mistyped.starts_with("mine.json: field launch_us: invalid type"), "{mistyped}");
    let nested = refusal("\"latency_us\": 0", "\"latency_us\": 0, \"lanes\": 16");
    assert!(nested.starts_with("mine.json: field lanes: unknown field"), "{nested}");
    let condition = refusal("\"when\": {}", "\"when\": {\"groups\": 1}");
    assert!(condition.starts_with("mine.json: field groups: unknown field"), "{condition}");
    let rule = refusal("\"workspace\": \"none\"", "\"workspace\": \"some\"");
    assert!(rule.starts_with("mine.json: field workspace: unknown variant"), "{rule}");
    let cut = Machine::parse_file("mine.json", &TOY[..TOY.len() / 2]).unwrap_err().to_string();
    assert!(cut.starts_with("mine.json: field "), "{cut}");
    let empty = Machine::parse_file("mine.json", "").unwrap_err().to_string();
    assert!(empty.starts_with("mine.json: field (none): "), "{empty}");
}

#[test]
fn senseless_values_are_refused() {
    let negative = refusal("\"d2h\": 1e8", "\"d2h\": -1e8");
    assert_eq!(negative, "mine.json: field link.d2h: expected a positive number, found -100000000");
    let share = refusal("\"dram_efficiency\": 1.0", "\"dram_efficiency\": 1.5");
    assert_eq!(share, "mine.json: field dram_efficiency: expected a share above 0 and at most 1, found 1.5");
    let time = refusal("\"latency_us\": 0", "\"latency_us\": -1");
    assert_eq!(time, "mine.json: field link.latency_us: expected a time of at least 0, found -1");
    let none = refusal("{ \"f32\": 1e9 }", "{}");
    assert_eq!(none, "mine.json: field peak_flops: expected a rate for at least one type, found none");
    let twice = refusal("\"slow\"", "\"fast\"");
    assert!(twice.starts_with("mine.json: field convolution.algorithms[1].name: fast is there twice"), "{twice}");
    let spaced = refusal("\"slow\"", "\"slow one\"");
    assert!(spaced.starts_with("mine.json: field convolution.algorithms[0].name: expected letters"), "{spaced}");
    let general = TOY.replace("\"when\": {}", "\"when\": { \"kernel\": [3, 3] }");
    let error = Machine::parse(&general).unwrap_err().to_string();
    assert!(error.contains("convolution.algorithms: expected one algorithm with an empty `when`"), "{error}");
}

#[test]
fn one_copy_engine_serves_the_directions_in_turns() {
    let mut machine = Machine::named("toy").unwrap();
    assert_eq!(machine.links().duplex_each, 1e8);
    machine.link.copy_engines = 1;
    assert_eq!(machine.links().duplex_each, 5e7);
}
