// move_element: the smallest step of one element, the planted fault of the control.
// Twin of parity/inject.py. Launch: one thread.

extern "C" __global__ void move_element(void* buffer, long long index, int width, int is_float) {
  if (is_float) {
    unsigned* bits = (unsigned*)buffer + index;
    *bits += (*bits & 0x7fffffffu) != 0x7f7fffffu ? 1u : 0xffffffffu;
  } else if (width == 1) {
    signed char* value = (signed char*)buffer + index;
    *value = (signed char)(*value > 0 ? *value - 1 : *value + 1);
  } else {
    int* value = (int*)buffer + index;
    *value = *value > 0 ? *value - 1 : *value + 1;
  }
}
