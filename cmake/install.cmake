# The installed package: find_package(sluice) gives sluice::sluice; also a pkg-config file.
install(TARGETS sluice EXPORT sluiceTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/sluice DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
install(EXPORT sluiceTargets NAMESPACE sluice:: DESTINATION ${package_dir})
configure_package_config_file(cmake/sluiceConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/sluiceConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/sluiceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/sluiceConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/sluiceConfigVersion.cmake DESTINATION ${package_dir})
# Relative, so that an installed tree may be moved and `cmake --install --prefix` is honoured.
file(RELATIVE_PATH SLUICE_PC_TO_PREFIX
  /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/sluice.pc.in ${CMAKE_CURRENT_BINARY_DIR}/sluice.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/sluice.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(SLUICE_BUILD_TOOLS)
  install(TARGETS sluice_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
