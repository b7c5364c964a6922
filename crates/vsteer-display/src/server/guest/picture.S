# What shows frames within a guest? A program that copies each from memory that it shares with its host to its screen, and sleeps until it is woken by an NMI.
#
# It is started by QEMU itself (-kernel, Multiboot), sets the standard VGA's mode by Bochs' registers and finds both memories where the host put their devices: the VGA at
# 00:02.0 (BAR 0), the shared memory (ivshmem-plain) at 00:03.0 (BAR 2). Shared are: the number of the newest frame, that of the last one copied, width, height, and whether it has begun; pixels from 4096 on.
#
# Sources: Multiboot 0.6.96; QEMU's docs/specs/standard-vga.txt and ivshmem-spec.txt. picture.bin is made of it by
#   as --32 picture.S -o picture.o && ld -m elf_i386 -Ttext 0x100000 --oformat binary picture.o -o picture.bin
	.code32
	.globl _start
	.text
header:	.long 0x1badb002, 0x00010000, -(0x1badb002 + 0x00010000)
	.long header, header, end, end + 4096, _start	# loaded as it is
_start:	cli
	cld
	movl $end + 4096, %esp
	lgdt gdtr
	ljmp $8, $1f
1:	movw $16, %ax
	movw %ax, %ds
	movw %ax, %es
	movw %ax, %ss
	lidt idtr
	movl $0x80001818, %eax		# 00:03.0, BAR 2
	call bar
	movl %eax, %ebx			# ebx: shared
	movl $0x80001010, %eax		# 00:02.0, BAR 0
	call bar
	movl %eax, %ebp			# ebp: screen
	movl $4, %eax			# off, while it is set
	xorl %ecx, %ecx
	call vbe
	movl $1, %eax
	movl 8(%ebx), %ecx
	call vbe
	movl $2, %eax
	movl 12(%ebx), %ecx
	call vbe
	movl $3, %eax
	movl $32, %ecx
	call vbe
	movl $4, %eax			# on, linear
	movl $0x41, %ecx
	call vbe
	movl $1, 16(%ebx)		# from now on it can be woken
again:	movl (%ebx), %eax
	cmpl 4(%ebx), %eax
	je sleep
	movl 8(%ebx), %ecx
	imull 12(%ebx), %ecx
	leal 4096(%ebx), %esi
	movl %ebp, %edi
	rep movsl
	movl %eax, 4(%ebx)
	jmp again
sleep:	hlt
	jmp again
nmi:	iret

bar:	movw $0xcf8, %dx		# of a register's address, the memory's
	outl %eax, %dx
	movw $0xcfc, %dx
	inl %dx, %eax
	andl $0xfffffff0, %eax
	ret
vbe:	movw $0x1ce, %dx		# eax: which, ecx: what
	outw %ax, %dx
	movw $0x1cf, %dx
	movl %ecx, %eax
	outw %ax, %dx
	ret

	.balign 8
gdt:	.quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
gdtr:	.word 23
	.long gdt
	.balign 8
idt:	.quad 0, 0
	.word nmi - header, 8, 0x8e00, 0x10	# all lies between 0x100000 and 0x110000
idtr:	.word 23
	.long idt
end:
