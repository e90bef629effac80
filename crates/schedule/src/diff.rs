//! The difference of two schedules as people read it: lines of the text form that go (`-`) and come (`+`).
//!
//! Patience diff: lines that are unique in both texts and stand in the same order are taken as fixed, and the stretches
//! between are compared again. Long texts with small changes cost little more than reading them; a stretch without any
//! unique line is aligned exactly when it is short and shown as replaced when it is long.

use crate::Schedule;
use std::collections::HashMap;
use std::ops::Range;

/// Unchanged lines shown around a change.
const CONTEXT: usize = 2;
/// Largest table of a stretch that is aligned exactly.
const EXACT: usize = 1 << 20;

/// A readable difference of the text forms; empty when they are equal.
pub fn diff(a: &Schedule, b: &Schedule) -> String {
    let (a, b) = (a.to_text(), b.to_text());
    let (a, b): (Vec<&str>, Vec<&str>) = (a.lines().collect(), b.lines().collect());
    render(&a, &b, &matches(&a, &b))
}

/// Indices of lines that are the same, ascending in both texts.
fn matches(a: &[&str], b: &[&str]) -> Vec<(usize, usize)> {
    let mut matched = Vec::new();
    let mut stretches = vec![(0..a.len(), 0..b.len())];
    while let Some((mut left, mut right)) = stretches.pop() {
        while !left.is_empty() && !right.is_empty() && a[left.start] == b[right.start] {
            matched.push((left.start, right.start));
            left.start += 1;
            right.start += 1;
        }
        while !left.is_empty() && !right.is_empty() && a[left.end - 1] == b[right.end - 1] {
            left.end -= 1;
            right.end -= 1;
            matched.push((left.end, right.end));
        }
        if left.is_empty() || right.is_empty() {
            continue;
        }
        let fixed = unique_in_both(a, b, left.clone(), right.clone());
        if fixed.is_empty() {
            matched.extend(exact(a, b, left, right));
            continue;
        }
        for (i, j) in fixed {
            stretches.push((left.start..i, right.start..j));
            matched.push((i, j));
            (left.start, right.start) = (i + 1, j + 1);
        }
        stretches.push((left, right));
    }
    matched.sort_unstable();
    matched
}

/// Lines unique on both sides: the longest run of them that ascends on both.
fn unique_in_both(a: &[&str], b: &[&str], left: Range<usize>, right: Range<usize>) -> Vec<(usize, usize)> {
    // Count and place, on each side.
    let mut seen: HashMap<&str, [(usize, usize); 2]> = HashMap::new();
    for (side, (lines, range)) in [(a, left.clone()), (b, right)].into_iter().enumerate() {
        for index in range {
            let place = &mut seen.entry(lines[index]).or_default()[side];
            *place = (place.0 + 1, index);
        }
    }
    let pairs = left.filter_map(|i| match seen[a[i]] {
        [(1, _), (1, j)] => Some((i, j)),
        _ => None,
    });
    longest_ascending(&pairs.collect::<Vec<_>>())
}

/// The longest subsequence whose second members ascend (first members do already), by patience sorting.
fn longest_ascending(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut tops: Vec<usize> = Vec::new();
    let mut below: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (index, pair) in pairs.iter().enumerate() {
        let pile = tops.partition_point(|&top| pairs[top].1 < pair.1);
        below.push(pile.checked_sub(1).map(|pile| tops[pile]));
        if pile == tops.len() { tops.push(index) } else { tops[pile] = index }
    }
    let mut chain: Vec<(usize, usize)> = Vec::new();
    let mut next = tops.last().copied();
    while let Some(index) = next {
        chain.push(pairs[index]);
        next = below[index];
    }
    chain.reverse();
    chain
}

/// The longest common subsequence of a short stretch; nothing for a long one.
fn exact(a: &[&str], b: &[&str], left: Range<usize>, right: Range<usize>) -> Vec<(usize, usize)> {
    let (n, m) = (left.len(), right.len());
    if n.saturating_mul(m) > EXACT {
        return Vec::new();
    }
    let width = m + 1;
    let mut longest = vec![0u32; (n + 1) * width];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            longest[i * width + j] = if a[left.start + i] == b[right.start + j] {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut matched = Vec::new();
    while i < n && j < m {
        if a[left.start + i] == b[right.start + j] {
            matched.push((left.start + i, right.start + j));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    matched
}

/// Changes with a little context; `…` stands for what is left out.
fn render(a: &[&str], b: &[&str], matched: &[(usize, usize)]) -> String {
    let text = &mut String::new();
    let (mut i, mut j) = (0, 0);
    let mut same: Vec<&str> = Vec::new();
    for &(next_i, next_j) in matched.iter().chain(&[(a.len(), b.len())]) {
        if i < next_i || j < next_j {
            context(text, &same);
            same.clear();
            a[i..next_i].iter().for_each(|line| push(text, '-', line));
            b[j..next_j].iter().for_each(|line| push(text, '+', line));
        }
        if next_i < a.len() {
            same.push(a[next_i]);
        }
        (i, j) = (next_i + 1, next_j + 1);
    }
    if !text.is_empty() {
        same.iter().take(CONTEXT).for_each(|line| push(text, ' ', line));
    }
    std::mem::take(text)
}

fn push(text: &mut String, mark: char, line: &str) {
    text.push(mark);
    text.push_str(line);
    text.push('\n');
}

/// Unchanged lines between two changes.
fn context(text: &mut String, same: &[&str]) {
    let after = if text.is_empty() { 0 } else { CONTEXT };
    if same.len() <= after + CONTEXT {
        same.iter().for_each(|line| push(text, ' ', line));
        return;
    }
    same[..after].iter().for_each(|line| push(text, ' ', line));
    text.push_str("…\n");
    same[same.len() - CONTEXT..].iter().for_each(|line| push(text, ' ', line));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        text.split(' ').collect()
    }

    fn show(a: &str, b: &str) -> String {
        let (a, b) = (lines(a), lines(b));
        render(&a, &b, &matches(&a, &b)).replace('\n', "|")
    }

    #[test]
    fn shows_what_goes_and_comes() {
        assert_eq!(show("a b c", "a b c"), "");
        assert_eq!(show("a b c d e f g", "a b c x e f g"), "…| b| c|-d|+x| e| f|");
        assert_eq!(show("s p p q q e", "s q q p p e"), " s|-p|-p| q| q|+p|+p| e|");
        assert_eq!(show("", "x"), "-|+x|");
    }

    #[test]
    fn moved_lines_are_shown_once_each_way() {
        assert_eq!(show("p q r s", "q r s p"), "-p| q| r| s|+p|");
    }

    #[test]
    fn fifty_thousand_lines() {
        let a: Vec<String> = (0..50_000).map(|i| format!("line {}", i % 40_000)).collect();
        let mut b = a.clone();
        b.remove(123);
        b[25_000] = "changed".to_string();
        b.insert(45_000, "new".to_string());
        let (a, b): (Vec<&str>, Vec<&str>) =
            (a.iter().map(String::as_str).collect(), b.iter().map(String::as_str).collect());
        let matched = matches(&a, &b);
        assert_eq!(matched.len(), 49_998);
        assert!(matched.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
    }
}
