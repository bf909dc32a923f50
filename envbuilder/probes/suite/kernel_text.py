"""A small kernel whose name and constant are drawn for one run: what its machine code must hold, the host knows too."""

from __future__ import annotations

from .draw import Draw

# PTX ISA 6.3 and Turing: what every ptxas from CUDA 10.0 to 13 assembles; before that, 6.0 and Volta.
ISA, TARGET = "6.3", 75
OLDER_ISA, OLDER_TARGET = "6.0", 70
TEXT = """.version {isa}
.target sm_{target}
.address_size 64
.visible .entry {name}(.param .u64 out)
{{
 .reg .b32 %r<3>;
 .reg .b64 %rd<4>;
 ld.param.u64 %rd1, [out];
 cvta.to.global.u64 %rd2, %rd1;
 mov.u32 %r1, %tid.x;
 xor.b32 %r2, %r1, {constant};
 mul.wide.u32 %rd3, %r1, 4;
 add.s64 %rd2, %rd2, %rd3;
 st.global.u32 [%rd2], %r2;
 ret;
}}
"""


class Kernel:
    """The kernel of one run: its ``name``, its ``constant`` (32 bits), the GPU that it is for (``75``), its ``text``.

    ``cuda`` is what the build was made with: what came before 10.0 knows no Turing.
    """

    def __init__(self, nonce: str, cuda: str | None) -> None:
        drawn = Draw(nonce)
        old = bool(cuda) and int(str(cuda).split(".")[0]) < 10
        self.target = OLDER_TARGET if old else TARGET
        self.name = "k_" + drawn.word("kernel", 12)
        self.constant = int.from_bytes(drawn.octets("constant", 4), "little") & 0x7FFFFFFF | 0x01000000
        self.text = TEXT.format(
            isa=OLDER_ISA if old else ISA, target=self.target, name=self.name, constant=self.constant
        )
