// Memory from the system, and mapped files.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "device.h"

namespace copse {

Memory::Memory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
  flags |= MAP_NORESERVE;
#endif
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (p == MAP_FAILED) fail("no memory for ", bytes, " bytes: ", strerror(errno));
  data_ = static_cast<uint8_t*>(p);
}

Memory::~Memory() {
  if (data_) munmap(data_, bytes_);
}

void Memory::discard(size_t from, size_t count) const {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  const size_t first = (from + page - 1) / page * page, end = (from + count) / page * page;
  if (first < end) madvise(data_ + first, end - first, MADV_DONTNEED);
}

Mapping::Mapping(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("can not open ", path, ": ", strerror(errno));
  struct stat info;
  if (fstat(fd, &info) != 0 || info.st_size == 0) {
    close(fd);
    fail("can not map ", path, ": it is empty or unreadable");
  }
  bytes = size_t(info.st_size);
  void* p = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (p == MAP_FAILED) fail("can not map ", path, ": ", strerror(errno));
  data = static_cast<const uint8_t*>(p);
}

Mapping::~Mapping() {
  if (data) munmap(const_cast<uint8_t*>(data), bytes);
}

}  // namespace copse
