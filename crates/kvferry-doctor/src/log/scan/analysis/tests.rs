use super::*;
use crate::catalogue::Catalogue;
use crate::log::strip;

fn blinded(text: &str, least: usize) -> String {
    let mut text = text.as_bytes().to_vec();
    blind(&mut text, least);
    String::from_utf8(text).expect("letters for letters")
}

#[test]
fn numbers_are_overwritten_and_names_stay() {
    for (text, any, long) in [
        ("10.0.1.22:80, 127.0.0.1", "11.0.1.11:11, 111.0.0.1", "11.0.1.11:80, 127.0.0.1"),
        ("room 7 of 4711", "room 1 of 1111", "room 7 of 1111"),
        ("mlx5_0 on port 18515", "mlx5_0 on port 11111", "mlx5_0 on port 11111"),
        ("at 0x7f3a00000000", "at 0xhhhhhhhhhhhh", "at 0xhhhhhhhhhhhh"),
        ("at 0x700000000000", "at 0x111111111111", "at 0x111111111111"),
        ("at 0x0", "at 0x0", "at 0x0"),
        ("gid 0000:0000", "gid 0000:0000", "gid 0000:0000"),
        ("rid='fb1c04660eb4492a'", "rid='hhhhhhhhhhhhhhhh'", "rid='hhhhhhhhhhhhhhhh'"),
        ("9c9f-4d21", "1c9f-1d21", "9c9f-4d21"),
        (
            "id c92321f8-5be9-4722-9cc1-648335f9c072.",
            "id hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh.",
            "id hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh.",
        ),
        ("took 12ms, P2P", "took 11ms, P2P", "took 12ms, P2P"),
    ] {
        assert_eq!((blinded(text, 1).as_str(), blinded(text, LONG).as_str()), (any, long));
    }
}

/// What is remembered of a line says of the same line with other numbers what that says by itself.
#[test]
fn remembered_lines_say_what_they_would_say_by_themselves() {
    let scanner = Scanner::new(Catalogue::built_in());
    let examples = || Catalogue::built_in().entries().iter().flat_map(|entry| &entry.side.examples);
    let other = |text: &str, by: u8| -> String {
        let turn = |letter: char| match letter {
            '0'..='9' => char::from(b'0' + (letter as u8 - b'0') * by % 10),
            other => other,
        };
        text.chars().map(turn).collect()
    };
    // 12 becomes 22, 14 and others become other errors, 503 becomes 504 and 404.
    let errors = [("12", "22"), ("14", "12"), ("22", "14"), ("503", "404"), ("111", "113"), ("0x0", "0x7")];
    let mut memory = Memory::default();
    let mut compared = 0;
    for round in 0..2 {
        for example in examples() {
            let mut lines: Vec<String> = [1, 3, 7, 9].map(|by| other(example, by)).to_vec();
            lines.extend(errors.iter().map(|(from, to)| example.replace(from, to)));
            if round == 1 {
                lines.reverse();
            }
            for line in &lines {
                let stripped = strip(line.as_bytes());
                let (alone, _) = analyse(&scanner, &stripped, &mut Scratch::default());
                assert_eq!(*memory.analysis(&scanner, &stripped), alone, "{line}");
                compared += 1;
            }
        }
    }
    assert!(compared > 3_000, "{compared}");
}

#[test]
fn levels_are_told_apart_and_memory_is_bounded() {
    let scanner = Scanner::new(Catalogue::built_in());
    let mut memory = Memory::default();
    let error = memory.analysis(&scanner, &strip(b"ERROR peer 3: connection reset by peer"));
    let information = memory.analysis(&scanner, &strip(b"INFO peer 4: connection reset by peer"));
    assert!(error.best.is_some() && information.best.is_none(), "{error:?} {information:?}");
    for number in 0..3 * MOST {
        let name: String =
            format!("{number:b}").chars().map(|bit| if bit == '0' { 'x' } else { 'y' }).collect();
        memory.analysis(&scanner, &strip(format!("{name} failed").as_bytes()));
        assert!(memory.blind.len() + memory.careful.len() <= MOST + 1);
    }
}
