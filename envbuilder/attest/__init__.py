"""What is signed: in-toto statements about one manifest digest, and the rules by which they are trusted."""
