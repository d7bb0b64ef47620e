// A file system for tests, `flaky://NAME`, that all processes of a machine share and that fails.
//
// flaky://a/b is the file $FLAKY_ROOT/a/b. As in an object store, a file appears when it is closed,
// nothing is appended to a file, and folders cannot be renamed.
//
//   FLAKY_EVERY=N  every N-th call of a process fails with UNAVAILABLE. Every other of these
//                  failures comes after the work, as if the answer was lost.
//   FLAKY_LATE=S   a file is missing in listings for S seconds after it was written.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "tensorflow/c/experimental/filesystem/filesystem_interface.h"
#include "tensorflow/c/tf_status.h"

namespace {

const std::string kScheme = "flaky://";
const std::string kWriting = ".writing";  // the folder of files that are not closed

double Number(const char* name) {
  const char* text = getenv(name);
  return text ? atof(text) : 0;
}

std::string Root() { return getenv("FLAKY_ROOT"); }

std::string Local(const std::string& uri) { return Root() + "/" + uri.substr(kScheme.size()); }

void SetErrno(TF_Status* status, const std::string& uri) {
  const TF_Code code = errno == ENOENT    ? TF_NOT_FOUND
                       : errno == EEXIST  ? TF_ALREADY_EXISTS
                       : errno == EISDIR  ? TF_FAILED_PRECONDITION
                       : errno == ENOTDIR ? TF_FAILED_PRECONDITION
                       : errno == EACCES  ? TF_PERMISSION_DENIED
                       : errno == ENOSPC  ? TF_RESOURCE_EXHAUSTED
                                          : TF_INTERNAL;
  TF_SetStatus(status, code, (uri + "; " + strerror(errno)).c_str());
}

enum Fate { kWork, kFail, kLoseAnswer };

// Decides about a call, and sets the status if it fails.
Fate Next(TF_Status* status, const std::string& uri, const char* call) {
  static std::atomic<int64_t> calls{0};
  static std::atomic<int64_t> failures{0};
  TF_SetStatus(status, TF_OK, "");
  const int64_t every = static_cast<int64_t>(Number("FLAKY_EVERY"));
  if (!every || ++calls % every) return kWork;
  const Fate fate = ++failures % 2 ? kFail : kLoseAnswer;
  const char* what = fate == kFail ? " failed" : " has lost its answer";
  TF_SetStatus(status, TF_UNAVAILABLE, (uri + "; flaky " + call + what).c_str());
  return fate;
}

bool Late(const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) || S_ISDIR(found.st_mode)) return false;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const double age =
      now.tv_sec - found.st_ctim.tv_sec + 1e-9 * (now.tv_nsec - found.st_ctim.tv_nsec);
  return age < Number("FLAKY_LATE");
}

// Files that are read.

struct Readable {
  std::string uri;
  int descriptor;
};

void CleanupReadable(TF_RandomAccessFile* file) {
  auto* readable = static_cast<Readable*>(file->plugin_file);
  close(readable->descriptor);
  delete readable;
}

int64_t Read(const TF_RandomAccessFile* file, uint64_t offset, size_t n, char* buffer,
             TF_Status* status) {
  auto* readable = static_cast<Readable*>(file->plugin_file);
  if (Next(status, readable->uri, "read") != kWork) return -1;
  size_t done = 0;
  while (done < n) {
    const ssize_t count = pread(readable->descriptor, buffer + done, n - done, offset + done);
    if (count < 0) {
      SetErrno(status, readable->uri);
      return -1;
    }
    if (count == 0) {
      TF_SetStatus(status, TF_OUT_OF_RANGE, "end of file");
      break;
    }
    done += count;
  }
  return done;
}

// Files that are written.

struct Writable {
  std::string uri;
  std::string temporary;
  int descriptor;
  int64_t size;
};

void CleanupWritable(TF_WritableFile* file) {
  auto* writable = static_cast<Writable*>(file->plugin_file);
  if (writable->descriptor >= 0) close(writable->descriptor);
  unlink(writable->temporary.c_str());
  delete writable;
}

void Append(const TF_WritableFile* file, const char* buffer, size_t n, TF_Status* status) {
  auto* writable = static_cast<Writable*>(file->plugin_file);
  if (Next(status, writable->uri, "append") != kWork) return;
  for (size_t done = 0; done < n;) {
    const ssize_t count = write(writable->descriptor, buffer + done, n - done);
    if (count < 0) return SetErrno(status, writable->uri);
    done += count;
  }
  writable->size += n;
}

int64_t Tell(const TF_WritableFile* file, TF_Status* status) {
  TF_SetStatus(status, TF_OK, "");
  return static_cast<Writable*>(file->plugin_file)->size;
}

void Flush(const TF_WritableFile* file, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }

void Close(const TF_WritableFile* file, TF_Status* status) {
  auto* writable = static_cast<Writable*>(file->plugin_file);
  const Fate fate = Next(status, writable->uri, "close");
  close(writable->descriptor);
  writable->descriptor = -1;
  if (fate == kFail) return;
  if (rename(writable->temporary.c_str(), Local(writable->uri).c_str())) {
    SetErrno(status, writable->uri);
  }
}

// The file system.

void Init(TF_Filesystem* filesystem, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }

void Cleanup(TF_Filesystem* filesystem) {}

void NewReadable(const TF_Filesystem* filesystem, const char* uri, TF_RandomAccessFile* file,
                 TF_Status* status) {
  if (Next(status, uri, "open") != kWork) return;
  struct stat found;
  if (stat(Local(uri).c_str(), &found)) return SetErrno(status, uri);
  errno = EISDIR;
  if (S_ISDIR(found.st_mode)) return SetErrno(status, uri);
  const int descriptor = open(Local(uri).c_str(), O_RDONLY);
  if (descriptor < 0) return SetErrno(status, uri);
  file->plugin_file = new Readable{uri, descriptor};
}

void NewWritable(const TF_Filesystem* filesystem, const char* uri, TF_WritableFile* file,
                 TF_Status* status) {
  static std::atomic<int> number{0};
  if (Next(status, uri, "open") != kWork) return;
  mkdir((Root() + "/" + kWriting).c_str(), 0755);
  const std::string temporary = Root() + "/" + kWriting + "/" + std::to_string(getpid()) + "-" +
                                std::to_string(number++);
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (descriptor < 0) return SetErrno(status, uri);
  file->plugin_file = new Writable{uri, temporary, descriptor, 0};
}

void NewAppendable(const TF_Filesystem* filesystem, const char* uri, TF_WritableFile* file,
                   TF_Status* status) {
  TF_SetStatus(status, TF_UNIMPLEMENTED, "nothing can be appended");
}

void CreateDir(const TF_Filesystem* filesystem, const char* uri, TF_Status* status) {
  if (Next(status, uri, "create_dir") == kFail) return;
  std::error_code error;
  std::filesystem::create_directories(Local(uri), error);
  if (error) {
    errno = error.value();
    SetErrno(status, uri);
  }
}

void DeleteFile(const TF_Filesystem* filesystem, const char* uri, TF_Status* status) {
  if (Next(status, uri, "delete") == kFail) return;
  if (unlink(Local(uri).c_str())) SetErrno(status, uri);
}

void DeleteDir(const TF_Filesystem* filesystem, const char* uri, TF_Status* status) {
  if (Next(status, uri, "delete_dir") == kFail) return;
  if (rmdir(Local(uri).c_str())) SetErrno(status, uri);
}

void DeleteRecursively(const TF_Filesystem* filesystem, const char* uri, uint64_t* files,
                       uint64_t* folders, TF_Status* status) {
  *files = *folders = 0;
  if (Next(status, uri, "delete_recursively") == kFail) return;
  std::error_code error;
  errno = ENOENT;
  if (!std::filesystem::exists(Local(uri))) return SetErrno(status, uri);
  std::filesystem::remove_all(Local(uri), error);
}

void RenameFile(const TF_Filesystem* filesystem, const char* source, const char* target,
                TF_Status* status) {
  if (Next(status, source, "rename") == kFail) return;
  struct stat found;
  if (stat(Local(source).c_str(), &found)) return SetErrno(status, source);
  if (S_ISDIR(found.st_mode)) {
    return TF_SetStatus(status, TF_UNIMPLEMENTED, "folders cannot be renamed");
  }
  if (rename(Local(source).c_str(), Local(target).c_str())) SetErrno(status, source);
}

void Stat(const TF_Filesystem* filesystem, const char* uri, TF_FileStatistics* stats,
          TF_Status* status) {
  if (Next(status, uri, "stat") != kWork) return;
  struct stat found;
  if (stat(Local(uri).c_str(), &found)) return SetErrno(status, uri);
  stats->length = found.st_size;
  stats->mtime_nsec = found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec;
  stats->is_directory = S_ISDIR(found.st_mode);
}

void PathExists(const TF_Filesystem* filesystem, const char* uri, TF_Status* status) {
  TF_FileStatistics stats;
  Stat(filesystem, uri, &stats, status);
}

bool IsDirectory(const TF_Filesystem* filesystem, const char* uri, TF_Status* status) {
  TF_FileStatistics stats;
  Stat(filesystem, uri, &stats, status);
  if (TF_GetCode(status) != TF_OK) return false;
  if (!stats.is_directory) TF_SetStatus(status, TF_FAILED_PRECONDITION, "Not a directory");
  return stats.is_directory;
}

int64_t GetFileSize(const TF_Filesystem* filesystem, const char* uri, TF_Status* status) {
  TF_FileStatistics stats;
  Stat(filesystem, uri, &stats, status);
  return TF_GetCode(status) == TF_OK ? stats.length : -1;
}

char* TranslateName(const TF_Filesystem* filesystem, const char* uri) { return strdup(uri); }

int GetChildren(const TF_Filesystem* filesystem, const char* uri, char*** entries,
                TF_Status* status) {
  if (Next(status, uri, "get_children") != kWork) return -1;
  DIR* folder = opendir(Local(uri).c_str());
  if (!folder) {
    SetErrno(status, uri);
    return -1;
  }
  std::vector<std::string> names;
  while (struct dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != ".." && name != kWriting && !Late(Local(uri) + "/" + name)) {
      names.push_back(name);
    }
  }
  closedir(folder);
  *entries = static_cast<char**>(malloc(names.size() * sizeof(char*)));
  for (size_t i = 0; i < names.size(); ++i) (*entries)[i] = strdup(names[i].c_str());
  return names.size();
}

void* Allocate(size_t size) { return malloc(size); }

void Free(void* pointer) { free(pointer); }

}  // namespace

void TF_InitPlugin(TF_FilesystemPluginInfo* info) {
  info->plugin_memory_allocate = Allocate;
  info->plugin_memory_free = Free;
  info->num_schemes = 1;
  info->ops = static_cast<TF_FilesystemPluginOps*>(calloc(1, sizeof(TF_FilesystemPluginOps)));
  TF_FilesystemPluginOps* ops = info->ops;
  ops->scheme = strdup("flaky");
  TF_SetFilesystemVersionMetadata(ops);

  ops->random_access_file_ops =
      static_cast<TF_RandomAccessFileOps*>(calloc(1, TF_RANDOM_ACCESS_FILE_OPS_SIZE));
  ops->random_access_file_ops->cleanup = CleanupReadable;
  ops->random_access_file_ops->read = Read;

  ops->writable_file_ops = static_cast<TF_WritableFileOps*>(calloc(1, TF_WRITABLE_FILE_OPS_SIZE));
  ops->writable_file_ops->cleanup = CleanupWritable;
  ops->writable_file_ops->append = Append;
  ops->writable_file_ops->tell = Tell;
  ops->writable_file_ops->flush = Flush;
  ops->writable_file_ops->sync = Flush;
  ops->writable_file_ops->close = Close;

  ops->filesystem_ops = static_cast<TF_FilesystemOps*>(calloc(1, TF_FILESYSTEM_OPS_SIZE));
  ops->filesystem_ops->init = Init;
  ops->filesystem_ops->cleanup = Cleanup;
  ops->filesystem_ops->new_random_access_file = NewReadable;
  ops->filesystem_ops->new_writable_file = NewWritable;
  ops->filesystem_ops->new_appendable_file = NewAppendable;
  ops->filesystem_ops->create_dir = CreateDir;
  ops->filesystem_ops->recursively_create_dir = CreateDir;
  ops->filesystem_ops->delete_file = DeleteFile;
  ops->filesystem_ops->delete_dir = DeleteDir;
  ops->filesystem_ops->delete_recursively = DeleteRecursively;
  ops->filesystem_ops->rename_file = RenameFile;
  ops->filesystem_ops->path_exists = PathExists;
  ops->filesystem_ops->stat = Stat;
  ops->filesystem_ops->is_directory = IsDirectory;
  ops->filesystem_ops->get_file_size = GetFileSize;
  ops->filesystem_ops->translate_name = TranslateName;
  ops->filesystem_ops->get_children = GetChildren;
}
